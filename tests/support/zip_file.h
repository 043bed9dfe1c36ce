/* zip_file.h: writes ZIP archives with deflated members, following the description of the format.
 */
#ifndef CFLUX_TEST_ZIP_FILE_H
#define CFLUX_TEST_ZIP_FILE_H

#include <stddef.h>
#include <stdint.h>

typedef struct zip_member {
    const char *name;
    const void *data;
    size_t size;
    uint32_t declared; /* the size written in the archive; 0: the true one */
} zip_member;

/* Makes a temporary file (temp_file.h) with these members; *out_bytes: its size. */
const char *temp_zip(const char *name, const zip_member *members, int n, size_t *out_bytes);

#endif
