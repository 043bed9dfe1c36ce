/* other_files.h: recognises model files of other programs, which no format of this library can
 * read. Internal.
 */
#ifndef CFLUX_OTHER_FILES_H
#define CFLUX_OTHER_FILES_H

#include "formats.h"

/* A message that says what the file is and how to convert it. NULL if the file is unknown, or if
 * `format`, the format detected from its content (NULL: none), is right. */
const char *fxi_other_file(const fxi_bytes *file, const fxi_format *format);

#endif
