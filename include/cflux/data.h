/* cflux/data.h: reads data files, and makes batches. The last axis of an array counts
 * observations. */
#ifndef CFLUX_DATA_H
#define CFLUX_DATA_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* Reads an IDX file (the format of MNIST), plain or gzip, as an array of its element type:
 * n×rows×cols in the file becomes cols×rows×n. Types: 0x08 UInt8, 0x09 Int8 and 0x0B Int16 (both
 * become Int32), 0x0C Int32, 0x0D Float32, 0x0E Float64. Errors: FX_STATUS_IO, FX_STATUS_FORMAT
 * (also for trailing bytes); the message names the file, the offset, and the expected and actual
 * value. */
FX_API fx_array *fx_read_idx(const char *path);

/* Reads numbers in columns (CSV, plain or gzip) as a Float32 matrix columns×rows, one row per line.
 * The separator is found as fx_read_table finds it.
 * Lines at the top whose first field is not a number are skipped as a header; quoted fields there
 * may contain line breaks. A number may be in quotes. A missing field or one that is not a number
 * is FX_STATUS_FORMAT, with line and column. */
FX_API fx_array *fx_read_csv(const char *path);

/* fx_read_table(path): reads a table with column names and texts (CSV, plain or gzip) as a named
 * tuple of five:
 *   values    columns×rows, Float32; a text column holds positions in its labels
 *   columns   a named tuple with one entry per column: an empty tuple for a column of numbers;
 *             for a text column its distinct texts (labels) in alphabetical order, each with its
 *             number of rows (Int64)
 *   wide      a named tuple of the columns with numbers above 2^24 that Float32 would round, as
 *             Float64 vectors. Their numbers up to 2^24 are still rounded to Float32, so that
 *             equal fields give equal numbers in all columns
 *   line      the line of the first row in the file, from 1 (Int64)
 *   lines     the line of each row, an Int64 vector; an empty tuple if row i, from 0, is on line
 *             `line` + i
 *
 * The first line is a header if none of its fields is a number. It is also a header if it contains
 * texts but no missing value (e.g. NA), and if the second line has a number below each of these
 * texts; with .missing, a missing value below some of them, but not all, is allowed too. A column
 * name that is empty or repeated becomes "#3", the column's number from 1 ("#3.1" if another column
 * has that name). Without a header the names are "1", "2", …. A column is a text column if the
 * field in its first row is not a number. Texts are UTF-8. Fields may be quoted ("a, b", "say
 * ""yes""") and then contain line breaks (RFC 4180).
 *
 * Without .separator, the first 20 lines (of the first 64 KiB) decide: a separator fits if it
 * divides each of them into the same number of columns, at least two. ',' is taken if it fits, then
 * the one of ; | and tab that fits, then blanks (spaces and tabs, any number of them; leading
 * blanks are ignored) if also every line after the first contains a number. If none fits: ','.
 * FX_STATUS_FORMAT, with a message that names both separators: two of ; | and tab fit; or tab is
 * taken, but blanks fit with fewer columns; or numbers with a decimal comma (1,5) make two readings
 * possible.
 *
 * With .decimal = ',' numbers are written as 1,5 and -2,5e3. A field with a point is then not a
 * number, because the point of 1.234,5 groups thousands. If .separator is not given, ',' is not
 * considered, and if no other separator fits: ';'. With .separator = ',' the numbers must be in
 * quotes.
 *
 * With .missing, an empty field and the words NA, N/A, #N/A, NaN, nan, null, NULL, None, ? and -
 * are missing values. They are NaN in `values` and in `wide`, and are not counted as rows of a
 * label. A column is then a text column if its first field that is not missing is not a number.
 * In the column .text only an empty field is missing. Without .missing these words are texts, and
 * an error in a column of numbers.
 *
 * Errors: FX_STATUS_IO; FX_STATUS_ARGUMENT for another separator or decimal mark, a negative .skip,
 * or if the table has no column .text; FX_STATUS_FORMAT with line and column; if the table is read
 * with commas and the first line has none, the message also names the ';', '|' or tabs that it
 * contains. */
/* clang-format off */
#define FXI_READ_TABLE_ARGS(F)                                                                     \
    F(const char *, path, FXI_NULL) /* the file */                                                 \
    F(char, separator, 0)           /* one of , ; | tab, or a space for any number of blanks; 0:   \
                                       found from the first lines */                               \
    F(int64_t, skip, 0)             /* lines to skip at the top */                                 \
    F(bool, missing, false)         /* true: missing values become NaN */                          \
    F(const char *, text, FXI_NULL) /* a column, by name or by number from 1, that is a text */    \
                                    /* column even if it holds numbers, e.g. 007; NULL: none */    \
    F(char, decimal, 0)             /* the decimal mark of numbers, ',' or '.'; 0: '.' */
/* clang-format on */
FXI_OPTION_STRUCT(fx_read_table_args, FXI_READ_TABLE_ARGS);
FX_API void *fxi_read_table(const fx_read_table_args *a);

/* ---- DataLoader ------------------------------------------------------------------------------ */
/* Opaque: a data loader, which makes batches. */
typedef struct fx_loader fx_loader;
/* FX_WORKERS_AUTO: value of .workers; the loader chooses. FX_DRAWN: value of .seed; drawn from the
 * thread's random stream (fx_seed). */
#define FX_WORKERS_AUTO (-1)
#define FX_DRAWN        UINT64_MAX
/* The content of a batch (option .collate):
 *   FX_COLLATE_OBS    the selected observations: arrays whose final axis counts the observations of
 *                     the batch (Flux's collate = nothing)
 *   FX_COLLATE_NONE   a tuple of single observations (collate = false)
 *   FX_COLLATE_BATCH  single observations stacked by fx_batchobs (collate = true) */
typedef enum fx_collate { FX_COLLATE_OBS = 0, FX_COLLATE_NONE, FX_COLLATE_BATCH } fx_collate;
/* Receives observations, or a tuple of them, and `user`, and returns an object that the scope
 * owns. */
typedef void *(*fx_obs_fn)(void *observations, void *user);
/* Options of fx_dataloader: fx_dataloader(data, .batchsize = 64, .shuffle = true).
 *
 * With .batchsize = −1 the loader returns one observation at a time, without the final axis.
 *
 * .collate_with receives a tuple of single observations (the tuple of FX_COLLATE_NONE) and
 * .collate_user, and returns the batch.
 *
 * With .buffer the memory of a batch is reused: the next call of fx_next frees its arrays even if
 * the program has retained them, and reading them afterwards is FX_STATUS_STATE. Batches must then
 * be arrays or tuples of arrays.
 *
 * Workers are threads; each prepares up to two batches in advance. FX_WORKERS_AUTO is 1 if
 * .parallel is set. It is also 1 if data without functions (fx_mapobs) are copied from the host to
 * a device with its own memory: the next batch is then copied during the training step. Otherwise
 * it is 0.
 *
 * With .parallel the workers call the functions of fx_mapobs, several at the same time. These
 * functions must use evaluated arrays only, and need a lock to change shared data. Without
 * .parallel they are called in the thread that calls fx_next, and workers only gather
 * observations. */
/* clang-format off */
#define FXI_DATALOADER_ARGS(F)                                                                     \
    F(void *, data, FXI_NULL)        /* an array, a tuple or named tuple of data with equal        \
                                        numbers of observations, or a view (mlutils.h) */          \
    F(int64_t, batchsize, 1)         /* observations per batch; −1: single observations */         \
    F(bool, shuffle, false)          /* true: a new random order for every pass */                 \
    F(uint64_t, seed, FX_DRAWN)      /* seed of the order */                                       \
    F(bool, partial, true)           /* false: skip a smaller last batch */                        \
    F(int, workers, FX_WORKERS_AUTO) /* number of worker threads, at most 256; 0: none */          \
    F(fx_device *, device, FXI_NULL) /* device of the batches; NULL: that of the data */           \
    F(bool, parallel, false)         /* true: workers call the functions of fx_mapobs */           \
    F(fx_collate, collate, FX_COLLATE_OBS)  /* content of a batch */                               \
    F(fx_obs_fn, collate_with, FXI_NULL)    /* makes the batch; NULL: .collate decides */          \
    F(void *, collate_user, FXI_NULL)       /* passed to .collate_with */                          \
    F(bool, buffer, false)                  /* true: reuse the memory of a batch */
/* clang-format on */
FXI_OPTION_STRUCT(fx_dataloader_args, FXI_DATALOADER_ARGS);
/* fx_dataloader(data, …): a loader that the scope owns; it retains the data.
 *
 * The data are evaluated. Batches, their order and random numbers do not depend on the number of
 * workers: functions for batch k of a pass draw from a random stream derived from seed, pass and k.
 *
 * Memory: with n workers up to 2n batches exist besides the one in use (one worker: three batches
 * in total); without workers one.
 *
 * A failure in a worker is recorded in the thread that calls fx_next for that batch, and ends the
 * pass. A loader may be released, and a pass ended, at any time: the call waits until the workers
 * have finished their current batch and ended. After fork the child continues a pass without
 * workers.
 *
 * Data on a device with its own memory, e.g. fx_gpu(fx_tuple(X, Y)), stay there: batches are
 * gathered on the device, and only the shuffled positions are copied to it. Without .shuffle,
 * batches are views.
 *
 * If there are fewer observations than batchsize, a warning is given and the batch is smaller, as
 * in Flux. Errors: FX_STATUS_SHAPE if the arrays differ in their number of observations;
 * FX_STATUS_ARGUMENT for other data, an option out of range, and .parallel without workers. */
FX_API fx_loader *fxi_dataloader(const fx_dataloader_args *a);

/* One batch. `items` has the structure of the data (array, tuple, named tuple). x and y are the
 * arrays named x and y in a named tuple; with other names or none, x is the first item and y the
 * second. They are NULL if there is no such item, or if it is not an array.
 *
 * The batch owns its arrays until the next call of fx_next or fx_batch_end, which releases them;
 * fx_retain, fx_set and fx_keep keep an array longer. A zeroed fx_batch starts a pass. A pass ends
 * when fx_next returns false, or by fx_batch_end. After a `break` out of the loop without
 * fx_batch_end, the loader keeps the batch and prepared batches until the loader is released. */
typedef struct fx_batch {
    fx_array *x, *y;
    void *items;
    int64_t index;  /* index of the batch in the pass, from 0 */
    int64_t size;   /* number of observations */
    int64_t total;  /* fx_loader_part: observations of the whole batch; other loaders: `size` */
    void *fxi_pass; /* private */
} fx_batch;
/* Stores the next batch in *batch. Returns false at the end of the pass, and after a failure (with
 * an error record), which ends the pass. FX_STATUS_ARGUMENT for NULL; FX_STATUS_STATE if *batch is
 * a copy, or belongs to another loader. */
FX_API bool fx_next(fx_loader *loader, fx_batch *batch);
FX_API void fx_batch_end(fx_batch *batch);                /* ends a pass early */
FX_API int64_t fx_loader_length(const fx_loader *loader); /* batches per pass; 0 for NULL */
/* A loader that returns part number `part` (from 0) of every batch of `loader`. The loaders of all
 * parts have equally many batches, in the order of `loader`, and the parts of a batch are disjoint,
 * complete, and differ in size by at most one. A batch with fewer observations than parts is not
 * divided: each part is the whole batch. Functions of fx_mapobs draw other random numbers in each
 * part; in part 0 those of `loader`. Errors: FX_STATUS_ARGUMENT if the loader is not a DataLoader
 * or is already a part, and for a number out of range. */
FX_API fx_loader *fx_loader_part(fx_loader *loader, int part, int parts);
/* Position of a loader: the order (that of pass number `pass` for this seed), and how many batches
 * of this pass have been returned. A loader of the same data and batch size that is set to a
 * position returns the same batches from there on.
 *
 * fx_loader_tell returns the position of the pass that `batch` belongs to; for NULL, or a batch
 * without a pass, the start of the next pass. fx_loader_seek makes the next pass start at a
 * position; FX_STATUS_ARGUMENT if a pass does not have that many batches. */
typedef struct fx_loader_position {
    uint64_t seed, pass;
    int64_t batch;
} fx_loader_position;
FX_API fx_loader_position fx_loader_tell(const fx_loader *loader, const fx_batch *batch);
FX_API fx_status fx_loader_seek(fx_loader *loader, fx_loader_position to);
/* Number of observations: the size of the last axis of an array, or of all arrays in a tuple or
 * named tuple, in any nesting. If these differ: 0 and FX_STATUS_SHAPE in the error record.
 * MLUtils.numobs. */
FX_API int64_t fx_num_obs(void *data);
/* The observations with indices idx (integers, from 0), in the structure of the data; with a 0-d
 * idx one observation, without the final axis. The scope owns the result. An index out of range is
 * found when the value is computed (fx_gather). MLUtils.getobs. */
FX_API void *fx_get_obs(void *data, fx_array *idx);
/* Splits data into the first ⌊at·n⌋ observations and the rest, 0 < at < 1; returns a tuple of two:
 * slices of the arrays. FX_STATUS_ARGUMENT for another `at`; on failure the tuple holds two error
 * arrays. For several parts, random order and equal shares of labels see fx_splitobs
 * (mlutils.h). */
FX_API void *fx_split_obs(void *data, double at);
/* A loader whose batches are copies on the device of fx_gpu, in their own element types, for data
 * that do not fit on the device: each batch is freed when the next is requested, and reading its
 * arrays afterwards is FX_STATUS_STATE. Batches must be arrays, tuples or named tuples of arrays.
 * CUDA.CuIterator. */
FX_API fx_loader *fx_cu_iterator(fx_loader *loader);
/* Data whose observations (and batches) are f(observations), computed when they are requested. f
 * receives the result of fx_get_obs; in fx_mapobs, f is a function of arrays, e.g. fx_gpu, and is
 * applied to each array. FX_STATUS_ARGUMENT if f is NULL; errors of the data as for fx_dataloader.
 * f is called in the requesting thread, or with .parallel in a loader's workers (in inference mode,
 * as every new thread). MLUtils.mapobs. */
FX_API void *fx_mapobs_with(fx_obs_fn f, void *user, void *data);
FX_API void *fxi_mapobs(fx_map_fn f, void *data);
/* Macros with options: fx_read_table("iris.csv", .separator = ';'). */
#define fx_read_table(...)                                                                         \
    FXI_CALL(fxi_read_table(                                                                       \
        FXI_OPTIONS(fx_read_table_args, FXI_READ_TABLE_ARGS(FXI_DEFAULT).path = __VA_ARGS__)))
#define fx_mapobs(f, data) fxi_mapobs((f), (data))
#define fx_dataloader(...)                                                                         \
    FXI_CALL(fxi_dataloader(                                                                       \
        FXI_OPTIONS(fx_dataloader_args, FXI_DATALOADER_ARGS(FXI_DEFAULT).data = __VA_ARGS__)))

FXI_END_C
#endif
