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

enum { TARGETS_AT_MOST = 64 };
/* The columns that are not features. */
typedef struct feature_choice {
    int64_t targets[TARGETS_AT_MOST];
    int ntargets;
    int64_t id; /* −1: none */
} feature_choice;

/* True if the column is a target. */
bool is_target(const feature_choice *of, int64_t column);

/* True if the columns of a table without names, except `id` (−1: none), are as many as the features
 * of r: then no column is the target. */
bool are_all_features(const data_request *r, void *table, int64_t id);

/* Fills in d->x and d->columns from the table, as fx_read_table returns it: all columns but the
 * target and the names of the observations, or the features that r->columns names. A table without
 * column names must have their columns in the order of training. A text for which there is no
 * feature is refused, and so is a column with too many texts. Returns EXIT_FINE, or the exit status
 * of a failure (printed). */
int read_features(const data_request *r, void *table, const feature_choice *of, dataset *d);

#endif
