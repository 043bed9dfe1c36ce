/* observations.h: data sets: nested tuples of arrays of equal length along their final axis, and
 * views of them. Internal to src/data.
 *
 * The leaves of a data set are arrays and derived data sets. A derived data set computes its
 * observations from other data: by functions (mapobs), by a list of indices (a view), as windows or
 * as a join. The time of every function here grows with the number of distinct objects, not with
 * the number of paths to them.
 */
#ifndef CFLUX_OBSERVATIONS_H
#define CFLUX_OBSERVATIONS_H

#include <cflux/data.h>
#include <cflux/tree.h>

typedef struct fxi_derived fxi_derived;
/* The functions of one kind of derived data set. */
typedef struct fxi_derived_kind {
    /* The number of observations. n: that of the data, or with `parts` the sum over the parts.
     * NULL: the result is n. */
    int64_t (*count)(const fxi_derived *self, int64_t n);
    /* The observations with indices idx, a 0-d array or a list. */
    void *(*get)(fxi_derived *self, fx_array *idx);
    bool functions; /* calls functions of the program */
    bool parts;     /* the data are a tuple of data sets, each with its own number of
                       observations */
} fxi_derived_kind;
/* The first members of every derived data set. */
struct fxi_derived {
    fx_object base;
    const fxi_derived_kind *kind;
    void *data;
};

typedef struct fxi_obs_info {
    int64_t n;
    bool derived;   /* some leaf is not an array */
    bool functions; /* functions of the program compute some observations */
} fxi_obs_info;

/* Checks the structure, and that all leaves have the same number of observations. Failures are
 * recorded under `op` (for an error object only its status is returned). *out is zero on
 * failure. */
fx_status fxi_obs_inspect(const char *op, void *data, fxi_obs_info *out);
/* The same for callers that only need the number of observations. */
fx_status fxi_obs_check(const char *op, void *data, int64_t *out_n);

/* The data set if it is a derived one, else NULL. */
fxi_derived *fxi_derived_of(void *data);
/* The data without the functions and views around it: fxi_obs_apply and fxi_obs_order add them
 * again. */
void *fxi_obs_base(void *data);
/* Applies the functions around the base to selected observations of it. */
void *fxi_obs_apply(void *data, void *observations);
/* Replaces n indices of the data by those of its base. */
fx_status fxi_obs_order(void *data, int64_t n, int64_t *io_order);

/* The same structure and names with every leaf replaced; `leaf` is called once per distinct leaf.
 * An error array if it fails, or if a leaf becomes NULL (after a recorded error). */
typedef void *(*fxi_leaf_fn)(void *leaf, void *user);
void *fxi_obs_map(void *data, fxi_leaf_fn leaf, void *user);
/* Calls visit once for every distinct leaf. NULL leaves are skipped. If memory for the list of
 * visited objects is exhausted, the rest is skipped. */
typedef void (*fxi_leaf_visit_fn)(void *leaf, void *user);
void fxi_obs_each(void *data, fxi_leaf_visit_fn visit, void *user);
/* The observations with indices idx (0-d: one, without the final axis), as pending arrays. */
void *fxi_obs_get(void *data, fx_array *idx);
/* Observations start ≤ i < stop: slices of arrays, views of derived data. */
void *fxi_obs_range(void *data, int64_t start, int64_t stop);
/* Observation i. */
void *fxi_obs_one(void *data, int64_t i);

/* Joins n data sets of equal structure, array by array: along the final axis, or along a new one
 * after it. */
void *fxi_obs_joined(int n, void *const *data, bool along_final);
/* Number of observations in a batch of fx_batchview; 0 for other objects. */
int64_t fxi_batchview_size(const void *x);
/* A view of n indices, which are in range. */
void *fxi_obs_view(void *data, int64_t n, const int64_t *indices);
/* The same for an evaluated Int64 vector on the CPU, which the view shares. */
void *fxi_obs_view_of(void *data, fx_array *indices);
/* A view of observations first ≤ i < end without those of `held`, an ascending Int64 vector that is
 * evaluated and on the CPU, or NULL. It keeps no list of its indices. */
void *fxi_obs_rest(void *data, int64_t first, int64_t end, fx_array *held);
/* A view of observations first ≤ i < end, which prints as Flux's DistributedDataContainer. */
void *fxi_obs_shard(void *data, int64_t first, int64_t end);
/* An error array with a recorded error. */
void *fxi_obs_memory(const char *op);

#endif
