/* table_features.h: the features of a table. A column of numbers is one feature. A column of texts
 * is one feature for each distinct text, named "color=red": 1 where the column has this text,
 * otherwise 0.
 */
#ifndef CFLUX_TOOL_TABLE_FEATURES_H
#define CFLUX_TOOL_TABLE_FEATURES_H

#include "dataset.h"
#include "sorted_names.h"

/* The index of a column, by name, then by number from 1; −1 if there is none. */
int64_t find_column(const sorted_name *names, int64_t n, const char *wanted);
/* True if the columns have real names, not "1", "2", …. */
bool are_named(void *columns);
/* Refuses a column that the file does not have; suggests a similar name. Returns EXIT_BAD_INPUT. */
int no_column(const char *path, const char *wanted, void *columns);

/* Fills in d->x and d->columns from the table, as fx_read_table returns it: all columns but the
 * target (−1: none), or the features that r->columns names. A text that these do not name is
 * refused, and so is a column with too many texts. Returns EXIT_FINE, or the exit status of a
 * failure (printed). */
int read_features(const data_request *r, void *table, const sorted_name *names, int64_t target,
                  dataset *d);

#endif
