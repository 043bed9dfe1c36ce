/* cflux/data.h: data sets from files, and batches from data sets. The last axis counts
 * observations. */
#ifndef CFLUX_DATA_H
#define CFLUX_DATA_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* An IDX file (the format of MNIST), plain or gzip, as an array of its own element type: a file of
 * n×rows×cols becomes cols×rows×n. Types 0x08 UInt8, 0x0B widened to Int32, 0x0C Int32, 0x0D
 * Float32, 0x0E Float64 (0x09, signed bytes, are widened to Int32). Errors (FX_STATUS_IO,
 * FX_STATUS_FORMAT) name the file, the offset, what was expected and what was found; trailing bytes
 * are an error too. */
FX_API fx_array *fx_read_idx(const char *path);

/* A file of numbers in columns (CSV, plain or gzip) as a Float32 matrix columns×rows, one row per
 * line. Lines whose first field is not a number are skipped at the top as a header, where fields in
 * quotes may hold line breaks. Fields that are missing or not numbers are an error with line and
 * column. */
FX_API fx_array *fx_read_csv(const char *path);

/* A table with names and texts (CSV, plain or gzip), as a named tuple of four:
 *   values    columns×rows, Float32; a column of text holds positions in its labels
 *   columns   a named tuple with an entry for each column, by its name: an empty tuple for a column
 *             of numbers; for one of text its distinct texts (labels) in alphabetical order, each
 *             with the number of rows it is in (Int64)
 *   wide      a named tuple of the columns that hold numbers above 2^24 which Float32 rounds, by
 *             their names, as vectors of Float64; smaller numbers in them are those of Float32
 *   line      the number of the first row's line in the file, from 1 (Int64)
 * The first line is a header when none of its fields is a number, or when those that are none, and
 * do not say that a value is missing (as NA does), all stand above numbers of the next line; a name
 * that is empty or there before is replaced by "#3", the column's number from 1 ("#3.1" where
 * another column is called so), and without a header all names are numbers: "1", "2", …. A column
 * is one of text when the field in its first row is no number. Texts are UTF-8. Fields may stand in
 * quotes ("a, b", "say ""yes"""), and then hold line breaks (RFC 4180). Errors name line and
 * column, and where the first line has no comma, the ';' or tabs that it has. */
/* clang-format off */
#define FXI_READ_TABLE_ARGS(F)                                                                          \
    F(const char *, path, FXI_NULL)                                                                \
    F(char, separator, ',') /* one of , ; | tab, or a space: any number of blanks */               \
    F(int64_t, skip, 0)     /* lines at the top that are passed over */
/* clang-format on */
FXI_OPTION_STRUCT(fx_read_table_args, FXI_READ_TABLE_ARGS);
FX_API void *fxi_read_table(const fx_read_table_args *a);

/* ---- DataLoader ------------------------------------------------------------------------------ */
/* Goes over data in batches. */
typedef struct fx_loader fx_loader;
/* Values of .workers and .seed: the loader decides; drawn from the thread's stream (fx_seed). */
#define FX_WORKERS_AUTO (-1)
#define FX_DRAWN        UINT64_MAX
/* Options of fx_dataloader: fx_dataloader(data, .batchsize = 64, .shuffle = true).
 *
 * Workers are threads that make batches ahead of use, at most two each: one is a double buffer.
 * FX_WORKERS_AUTO is one if batches go from the host to a device with memory of its own, so that
 * the next one is collated and copied during the training step, or if .parallel is set; else none.
 *
 * With .parallel the workers run the functions of fx_mapobs, several at a time. These functions
 * must use evaluated arrays only, and change nothing that others use without a lock. By default
 * they run in the thread that calls fx_next, and the workers only collate. */
/* clang-format off */
#define FXI_DATALOADER_ARGS(F)                                                                         \
    F(void *, data, FXI_NULL)          /* an array, a tuple or a named tuple of arrays with as     \
                                          many observations each */                                \
    F(int64_t, batchsize, 1)                                                                       \
    F(bool, shuffle, false)            /* a new order every pass */                                \
    F(uint64_t, seed, FX_DRAWN)        /* of the order */                                          \
    F(bool, partial, true)             /* false: leave out a last, smaller batch */                \
    F(int, workers, FX_WORKERS_AUTO)   /* 0: no thread works ahead */                              \
    F(fx_device *, device, FXI_NULL)   /* where batches go; NULL: where the data is */             \
    F(bool, parallel, false)           /* workers run the functions of fx_mapobs */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dataloader_args, FXI_DATALOADER_ARGS);
/* Batches, their order and what their functions draw at random are the same whatever works ahead:
 * the functions of batch k of a pass draw from a stream of their own, made of seed, pass and k.
 *
 * Memory: with n workers there are up to 2n batches ahead besides the one in use, on the device as
 * well (for one worker: three batches in all). With .workers = 0 there is one.
 *
 * What goes wrong in a worker (memory, a copy, a device, a function) is recorded in the thread
 * whose fx_next reaches that batch, and ends the pass there. A loader may be dropped, or a pass
 * ended, at any time: its workers finish the batch they are at and are gone when the call returns.
 * After a fork the child goes on with a pass without workers.
 *
 * Data that already lie on a device with memory of its own, like fx_gpu(fx_tuple(X, Y)), stay
 * there: batches are gathered on it, and nothing but the shuffled positions is copied to it;
 * consecutive batches are views.
 *
 * Fewer observations than batchsize warn and shrink the batch, as in Flux. */
FX_API fx_loader *fxi_dataloader(const fx_dataloader_args *a);

/* One batch. items is what the data was (array, tuple, named tuple). x and y are the arrays of
 * these names, wherever they stand in a named tuple; with other names, or none, x is the first and
 * y the second (NULL when there is one). b owns its arrays until the next call or fx_batch_end,
 * which free them, unless somebody has them by fx_retain, fx_set or fx_keep. A zeroed batch starts
 * a pass; a pass ends when fx_next returns false or by fx_batch_end. A loop left by `break` alone
 * keeps its last batch and what was made ahead until its loader goes. */
typedef struct fx_batch {
    fx_array *x, *y;
    void *items;
    int64_t index;  /* from 0 */
    int64_t size;   /* observations in it */
    void *fxi_pass; /* private */
} fx_batch;
/* The next batch; false when the pass is over, or failed. */
FX_API bool fx_next(fx_loader *loader, fx_batch *batch);
FX_API void fx_batch_end(fx_batch *batch);                /* ends a pass before its end */
FX_API int64_t fx_loader_length(const fx_loader *loader); /* batches in a pass */
/* Where a loader is: which order (that of pass number `pass` under this seed), and how many batches
 * of the pass have been handed out. A loader of the same data that is put there gives the batches
 * that this one would give next. fx_loader_tell: `batch` drives the pass; NULL, or without a pass:
 * the beginning of the next one. fx_loader_seek: the next pass begins there. */
typedef struct fx_loader_position {
    uint64_t seed, pass;
    int64_t batch;
} fx_loader_position;
FX_API fx_loader_position fx_loader_tell(const fx_loader *loader, const fx_batch *batch);
FX_API fx_status fx_loader_seek(fx_loader *loader, fx_loader_position to);
/* Observations in an array, tuple or named tuple, by its last axis. An error when its arrays have
 * not as many each. MLUtils.numobs. */
FX_API int64_t fx_num_obs(void *data);
/* Observations idx (integers) of the data, in the same structure: MLUtils.getobs. */
FX_API void *fx_get_obs(void *data, fx_array *idx);
/* Splits by position: the first ⌊at·n⌋ observations and the rest, as a pair; at in (0, 1). Views.
 */
FX_API void *fx_split_obs(void *data, double at);
/* The batches of a loader on the GPU that fx_gpu would choose (on the CPU without one), in their
 * own element types, each freed as soon as the next is taken: CUDA.CuIterator, for data that do not
 * fit twice. Reading an array of an earlier batch is an error. Batches must be arrays, tuples or
 * named tuples of arrays. */
FX_API fx_loader *fx_cu_iterator(fx_loader *loader);
/* Data of which every observation (and every batch of a loader) is f of what it was, made when it
 * is asked for: MLUtils.mapobs. f takes what fx_get_obs gives, or, being a function of arrays such
 * as fx_gpu, is applied to each of its arrays. f runs in the thread that asks, or with .parallel in
 * a loader's workers, which are in inference mode as every new thread. */
typedef void *(*fx_obs_fn)(void *observations, void *user);
FX_API void *fx_mapobs_with(fx_obs_fn f, void *user, void *data);
FX_API void *fxi_mapobs(fx_map_fn f, void *data);
/* fx_read_table("iris.csv", .separator = ';') */
#define fx_read_table(...)                                                                         \
    FXI_CALL(fxi_read_table(                                                                       \
        FXI_OPTIONS(fx_read_table_args, FXI_READ_TABLE_ARGS(FXI_DEFAULT).path = __VA_ARGS__)))
#define fx_mapobs(f, data) fxi_mapobs((f), (data))
#define fx_dataloader(...)                                                                         \
    FXI_CALL(fxi_dataloader(                                                                       \
        FXI_OPTIONS(fx_dataloader_args, FXI_DATALOADER_ARGS(FXI_DEFAULT).data = __VA_ARGS__)))

FXI_END_C
#endif
