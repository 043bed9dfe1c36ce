/* training_data.h: reads the data of cflux train, divides them into a training and a validation
 * part, and scales them. */
#ifndef CFLUX_TOOL_TRAINING_DATA_H
#define CFLUX_TOOL_TRAINING_DATA_H

#include "held_out.h"
#include "initial_weights.h"
#include "problem.h"

/* The options of cflux train about data, as texts. */
typedef struct data_options {
    data_request request;
    const char *validation; /* a share, or files; NULL: none */
    const char *normalise, *missing;
    const char *weights; /* of the classes; NULL: all are 1 */
    int64_t vocabulary;  /* the largest number of tokens of texts; 0: the default */
    int64_t context;     /* of a language model: tokens of an observation; 0: the default */
    bool text;           /* train a language model */
    bool classes, numbers;
} data_options;

typedef struct training_data {
    dataset data, other;       /* other: the data of --validation FILE */
    fx_array *targets;         /* of all data but `other` */
    fx_array *x, *y, *vx, *vy; /* training and validation parts, scaled; vx NULL: no validation */
    int64_t ntrain, nvalidation;
} training_data;

/* True if --validation is a number, which is a share; other arguments are data files. */
bool training_share(const data_options *o, double *out);

/* Functions return EXIT_FINE, or the exit status of a failure (printed). */

/* Checks a share. */
int training_share_check(const data_options *o);
/* Reads the data, and finds the classes of the problem. */
int training_data_read(data_options *o, problem *p, training_data *d);
/* Divides the data, by folds if f.n > 0, and completes the problem: the weights of classes, the
 * replacements of missing values, and the scale (that of `init` if it fits and --normalise is
 * auto). */
int training_data_divide(const data_options *o, problem *p, const initial_model *init, fold f,
                         training_data *d);

#endif
