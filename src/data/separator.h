/* separator.h: finds the character that separates the columns of a table. Internal to src/data. */
#ifndef CFLUX_SEPARATOR_H
#define CFLUX_SEPARATOR_H

#include "csv_lines.h"

/* Chooses the separator from the unread lines, which stay unread: see fx_read_table in
 * cflux/data.h for the rule. `decimal` is the decimal mark of numbers, '.' or ','.
 * *out is ',' if no character fits, ';' with a decimal comma. FX_STATUS_FORMAT if the rule does not
 * decide; also the failures of reading. */
fx_status fxi_find_separator_of(fxi_lines *lines, char decimal, char *out);

#endif
