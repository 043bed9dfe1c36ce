/* other_files.h: files of models that other programs wrote, and no format of this library.
 * Internal.
 */
#ifndef CFLUX_OTHER_FILES_H
#define CFLUX_OTHER_FILES_H

#include "formats.h"

/* What the file is and what to do with it; NULL: nothing is known, or `format`, which its content
 * has (NULL: none), is right. */
const char *fxi_other_file(const fxi_bytes *file, const fxi_format *format);

#endif
