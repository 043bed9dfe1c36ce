/* cflux/mlutils.h: selections, splits and batches of data sets, and helpers for arrays
 * (MLUtils.jl).
 *
 * A data set is an array, a tuple or named tuple of data sets in any nesting, or the result of
 * fx_mapobs and of the functions below that return a view. The final axis of an array counts
 * observations. Indices and labels count from 0.
 *
 * A view holds the data and the indices of its observations, not copies of them. fx_num_obs,
 * fx_get_obs, fx_dataloader and all functions here accept views. fx_getobs returns the observations
 * of a view as arrays.
 *
 * Functions with a `seed` give the same result for the same seed; FX_DRAWN: a seed drawn from the
 * thread's random stream (fx_seed). The scope owns the results. On failure, functions that return
 * `void *` return an error array. Errors of the data are those of fx_dataloader. FX_STATUS_ARGUMENT
 * for NULL, for an axis that the array does not have, and for a number out of range;
 * FX_STATUS_DTYPE for labels that are not integers; FX_STATUS_SHAPE unless there is one label for
 * each observation. */
#ifndef CFLUX_MLUTILS_H
#define CFLUX_MLUTILS_H

#include <cflux/data.h>
#include <cflux/ops.h>

FXI_BEGIN_C

/* ---- observations ---------------------------------------------------------------------------- */
/* All observations as arrays, in the structure of the data: those that a view selects, or the
 * results of the functions of fx_mapobs. Without views and functions they are the data's own
 * arrays. MLUtils.getobs(data). */
FX_API void *fx_getobs(void *data);
/* A view of the observations with indices idx (integers, any order, repeats allowed). Evaluates
 * idx. FX_STATUS_ARGUMENT for an index out of range. MLUtils.obsview. */
FX_API void *fx_obsview(void *data, fx_array *idx);
/* x with `axis` as final axis, so that `axis` counts observations; a view of the array.
 * MLUtils.ObsDim. */
FX_API fx_array *fx_obsdim(fx_array *x, int axis);
/* The observations in random order; a view. MLUtils.shuffleobs. */
FX_API void *fx_shuffleobs(void *data, uint64_t seed);
/* n random observations with replacement; a view. MLUtils.randobs. */
FX_API void *fx_randobs(void *data, int64_t n, uint64_t seed);
/* The observations for which keep(observation, user) is true; a view. The function receives one
 * observation at a time, without the final axis. MLUtils.filterobs. */
typedef bool (*fx_obs_test_fn)(void *observation, void *user);
FX_API void *fx_filterobs(fx_obs_test_fn keep, void *user, void *data);
/* Groups observations by the number that key(observation, user) returns: a named tuple of views in
 * ascending order of the keys, with the keys in decimal as names. MLUtils.groupobs. */
typedef int64_t (*fx_obs_key_fn)(void *observation, void *user);
FX_API void *fx_groupobs(fx_obs_key_fn key, void *user, void *data);
/* fx_joinobs(a, b, …): the observations of all data sets one after another, as one data set. The
 * data sets must have the same structure. MLUtils.joinobs. */
FX_API void *fxi_joinobs(int n, void *const *data);
#define fx_joinobs(...) fxi_joinobs(FXI_OBJECTS(__VA_ARGS__))
/* Data whose observations are windows: window i has the observations i·stride … i·stride + size − 1
 * of the data, along a further axis at the end. Windows beyond the data are omitted.
 * FX_STATUS_ARGUMENT if size or stride is below 1, or size is above the number of observations.
 * MLUtils.slidingwindow. */
FX_API void *fx_slidingwindow(void *data, int64_t size, int64_t stride);
/* Data whose observations are batches of `batchsize` observations in order. With `partial` a
 * smaller last batch is included; this batch can only be requested alone, with a 0-d index.
 * MLUtils.BatchView. */
FX_API void *fx_batchview(void *data, int64_t batchsize, bool partial);
/* A loader that returns one observation at a time, without the final axis: fx_dataloader with
 * .batchsize = −1. MLUtils.eachobs. */
FX_API fx_loader *fx_eachobs(void *data);
/* Number of observations in a full batch of a loader or of an fx_batchview; −1 for a loader that
 * returns single observations; the size of a window of fx_slidingwindow; 0 for other objects.
 * MLUtils.batchsize. */
FX_API int64_t fx_batchsize(const void *loader);

/* ---- splits ---------------------------------------------------------------------------------- */
/* Options of fx_splitobs. */
/* clang-format off */
#define FXI_SPLITOBS_ARGS(F)                                                                       \
    F(void *, data, FXI_NULL)                /* a data set */                                      \
    F(fx_fractions, at, FXI_FRACTIONS_NONE)  /* size of each part but the last: a fraction of all  \
                                                observations, or a count if it is at least 1 */    \
    F(bool, shuffle, false)                  /* true: random order */                              \
    F(fx_array *, stratified, FXI_NULL)      /* labels (integers), one per observation: every part \
                                                gets each label in the same proportion */          \
    F(uint64_t, seed, FX_DRAWN)              /* seed of .shuffle */
/* clang-format on */
FXI_OPTION_STRUCT(fx_splitobs_args, FXI_SPLITOBS_ARGS);
/* fx_splitobs(data, FX_FRACTIONS(0.7, 0.15)): a tuple of views, one for each number and one for the
 * rest; here 70 %, 15 % and 15 %. A fraction f of n observations is round(f·n), halves to even. The
 * parts keep the order of the data unless .shuffle is set; with .stratified they are in the order
 * of the labels, and a count is divided among the labels in proportion to their numbers of
 * observations. FX_STATUS_ARGUMENT if a number is negative or not finite, if a count is not whole,
 * or if the parts need more observations than the data has. MLUtils.splitobs. */
FX_API void *fxi_splitobs(const fx_splitobs_args *a);
/* Options of fx_kfolds. */
/* clang-format off */
#define FXI_KFOLDS_ARGS(F)                                                                         \
    F(void *, data, FXI_NULL)           /* a data set */                                           \
    F(int64_t, k, 5)                    /* number of folds */                                      \
    F(bool, shuffle, false)             /* true: random folds */                                   \
    F(fx_array *, stratified, FXI_NULL) /* labels (integers), one per observation: every fold      \
                                           validates on each label in the same proportion */       \
    F(uint64_t, seed, FX_DRAWN)         /* seed of .shuffle */
/* clang-format on */
FXI_OPTION_STRUCT(fx_kfolds_args, FXI_KFOLDS_ARGS);
/* fx_kfolds(data, 5): a tuple of k pairs (training, validation) of views. Fold i validates on the
 * i-th of k consecutive parts and trains on the rest; the first n mod k parts have one observation
 * more. With .stratified the observations of each label are divided in this way. With .shuffle the
 * data and the labels are shuffled before. The folds together need memory for about n + k indices.
 * FX_STATUS_ARGUMENT unless 2 ≤ k ≤ n, and k ≤ the number of observations of each label;
 * FX_STATUS_SHAPE if there is not one label for each observation. MLUtils.kfolds. */
FX_API void *fxi_kfolds(const fx_kfolds_args *a);
/* fx_kfolds with ⌊n/p⌋ folds: validates on about p observations. FX_STATUS_ARGUMENT unless
 * 1 ≤ p ≤ n/2. MLUtils.leavepout. */
FX_API void *fx_leavepout(void *data, int64_t p);
/* Options of fx_timeseries_kfolds. */
/* clang-format off */
#define FXI_TIMESERIES_KFOLDS_ARGS(F)                                                              \
    F(void *, data, FXI_NULL)      /* a data set in order of time */                               \
    F(int64_t, k, 5)               /* number of folds */                                           \
    F(int64_t, gap, 0)             /* observations to leave out before each validation part */     \
    F(int64_t, max_train_size, 0)  /* trains on the latest observations only, at most this number; \
                                      0: on all before the gap */
/* clang-format on */
FXI_OPTION_STRUCT(fx_timeseries_kfolds_args, FXI_TIMESERIES_KFOLDS_ARGS);
/* fx_timeseries_kfolds(data, 5, .gap = 2): a tuple of k pairs (training, validation) of views for
 * data in order of time: fold i trains on everything before its validation part and the gap. Each
 * of the k validation parts has s = ⌊n/(k+1)⌋ observations; the last one ends with the data.
 * FX_STATUS_ARGUMENT unless 1 ≤ k < n, if the gap leaves fold 0 no observation, or for a negative
 * number. MLUtils.timeseries_kfolds. */
FX_API void *fxi_timeseries_kfolds(const fx_timeseries_kfolds_args *a);
/* A tuple of two views, of the data and of the labels (integers, one per observation), in which
 * every label occurs at least round(fraction·m) times, m the count of the most frequent label:
 * observations of rarer labels are repeated, each observation of a label equally often or once
 * more. With `shuffle`, the observations that are repeated once more are drawn at random, and the
 * result is in random order. Otherwise the first observations of a label are repeated once more,
 * and all repeats follow the data. FX_STATUS_ARGUMENT if fraction is negative or above 10⁶.
 * MLUtils.oversample. */
FX_API void *fx_oversample(void *data, fx_array *labels, double fraction, bool shuffle,
                           uint64_t seed);
/* A tuple of two views, of the data and of the labels, in which every label occurs as often as the
 * least frequent one. With `shuffle`: a random selection without replacement, in random order.
 * Otherwise the first observations of each label, in the order of the data. MLUtils.undersample. */
FX_API void *fx_undersample(void *data, fx_array *labels, bool shuffle, uint64_t seed);
/* The distinct labels (integers, any shape) in ascending order and how often each occurs: a named
 * tuple "labels", "counts" of Int64 vectors. MLUtils.group_counts. */
FX_API void *fx_group_counts(fx_array *labels);
/* The distinct labels in ascending order, and for each the indices where it occurs: a named tuple
 * "labels" (Int64 vector) and "indices" (a tuple of Int64 vectors). MLUtils.group_indices. */
FX_API void *fx_group_indices(fx_array *labels);

/* ---- batches --------------------------------------------------------------------------------- */
/* Stacks a tuple of observations of equal structure along a new final axis, array by array.
 * MLUtils.batch. */
FX_API void *fx_batchobs(void *observations);
/* The observations of a data set as a tuple, each without the final axis. MLUtils.unbatch. */
FX_API void *fx_unbatch(void *data);
/* Joins a tuple of N sequences, arrays of equal sizes except the final axis (time), into one array
 * with a further axis of size N. Shorter sequences are filled with `pad` at the end.
 * MLUtils.batch_sequence. */
FX_API fx_array *fx_batch_sequence(void *sequences, double pad);
/* fx_batch_sequence with another result: a tuple with one array per time step, each with the
 * sequences along its final axis. MLUtils.batchseq. */
FX_API void *fx_batchseq(void *sequences, double pad);
/* The slices of x along an axis as a tuple, without that axis. MLUtils.unstack. */
FX_API void *fx_unstack(fx_array *x, int axis);
/* Divides x along an axis into parts of size ⌈size/n⌉: at most n parts, of which the last one may
 * be smaller. A tuple of slices. MLUtils.chunk(x, n). */
FX_API void *fx_chunk(fx_array *x, int64_t n, int axis);
/* Divides x along an axis into parts of `size`; the last part may be smaller. A tuple of slices.
 * MLUtils.chunk(x; size). */
FX_API void *fx_chunk_size(fx_array *x, int64_t size, int axis);
/* Pads x with `value` at the end of each axis in `dims` that has fewer than n elements, up to n
 * elements. MLUtils.rpad_constant. */
FX_API fx_array *fx_rpad_constant(fx_array *x, int64_t n, double value, fx_axes dims);

/* ---- arrays ---------------------------------------------------------------------------------- */
/* Arrays with the shape, element type and device of x. fx_rand_like and fx_randn_like use Float32
 * if x is not floating-point. MLUtils.ones_like, fill_like, rand_like, randn_like. */
FX_API fx_array *fx_ones_like(const fx_array *x);
FX_API fx_array *fx_full_like(const fx_array *x, double value);
FX_API fx_array *fx_rand_like(const fx_array *x);
FX_API fx_array *fx_randn_like(const fx_array *x);
/* Bool arrays with the shape and device of x: all false, all true. MLUtils.falses_like,
 * trues_like. */
FX_API fx_array *fx_falses_like(const fx_array *x);
FX_API fx_array *fx_trues_like(const fx_array *x);
/* (x − min) / (max − min + eps), the extremes over the axes `dims`: numbers from 0 to 1.
 * MLUtils.rescale with dims = the final axis and eps = 1e-5. (MLUtils.normalise: fx_normalise,
 * nn.h.) */
FX_API fx_array *fx_rescale(fx_array *x, fx_axes dims, double eps);
/* The k largest elements along an axis in descending order, as a tuple (values, indices); among
 * equal elements the first; NaN counts as largest. Reads x to find the indices (Int64); the values
 * are differentiable. FX_STATUS_ARGUMENT if k is below 0 or above the axis' size. MLUtils.topk. */
FX_API void *fx_topk(fx_array *x, int64_t k, int axis);
/* Search for v[i, j] in column j of a, which is sorted; a: n×B, v: m×B, result: m×B, Int64. If a
 * is a vector of n numbers, v may have any shape: every number of v is searched for in a. The first
 * function returns the first index with a ≥ v, n if there is none; the second function the last
 * index with a ≤ v, −1 if there is none. MLUtils.batched_searchsortedfirst,
 * batched_searchsortedlast. */
FX_API fx_array *fx_batched_searchsortedfirst(fx_array *a, fx_array *v);
FX_API fx_array *fx_batched_searchsortedlast(fx_array *a, fx_array *v);

/* fx_splitobs(data, FX_FRACTIONS(0.8), .shuffle = true): the macros with options. */
#define fx_splitobs(...)                                                                           \
    FXI_CALL(fxi_splitobs(                                                                         \
        FXI_OPTIONS(fx_splitobs_args, FXI_SPLITOBS_ARGS(FXI_DEFAULT).data = __VA_ARGS__)))
#define fx_kfolds(...)                                                                             \
    FXI_CALL(                                                                                      \
        fxi_kfolds(FXI_OPTIONS(fx_kfolds_args, FXI_KFOLDS_ARGS(FXI_DEFAULT).data = __VA_ARGS__)))
#define fx_timeseries_kfolds(...)                                                                  \
    FXI_CALL(fxi_timeseries_kfolds(FXI_OPTIONS(                                                    \
        fx_timeseries_kfolds_args, FXI_TIMESERIES_KFOLDS_ARGS(FXI_DEFAULT).data = __VA_ARGS__)))

FXI_END_C
#endif
