/* golden.h: what the parts of golden_runner share.
 *
 * A case is a folder with a case.json and .npy files, computed by other software. It is run twice:
 * once in the element types that were recorded, once with Float32 inputs converted to Float64.
 * Arrays in C order keep their bytes and get their dimensions reversed: axis a of an r-dimensional
 * NumPy array is our axis r−1−a.
 *
 * The result of a case is one of three: passed, failed (with a message), or not built: its operator
 * is in the table of golden_not_built.c, with the reason. Anything else fails, so that a new case
 * never goes unnoticed.
 */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <cflux.h>
#include <cjson/cJSON.h>

typedef struct gold_case gold_case;

/* ---- recorded arrays ------------------------------------------------------------------------- */
/* Int8, Int16 and UInt16 are read as Int32, UInt32 and UInt64 as Int64, as cflux has no such types;
 * the values are the same. Integers are in `whole`, floats in `real`; the other pointer is NULL. */
typedef struct gold_tensor {
    fx_dtype dtype;
    int ndims;
    int64_t sizes[FX_MAX_DIMS]; /* reversed: ours */
    int64_t count;
    double *real;
    int64_t *whole;
} gold_tensor;

void *gold_alloc(size_t bytes); /* zeroed; ends the program if there is no memory */
/* False, with the reason in why, when the file cannot be read. */
bool gold_npy_read(const char *path, gold_tensor *out, char *why, size_t capacity);
/* The .npy file that a case describes as {"file", "dtype", "shape"} and, in lists, "name". The
 * file's own shape must be the one described. */
bool gold_load(gold_case *c, const char *folder, const cJSON *spec, gold_tensor *out);
void gold_tensor_free(gold_tensor *t);
/* The array with t's values; real_dtype replaces Float32 and Float64 (FX_DTYPE_COUNT: as recorded).
 */
fx_array *gold_array(const gold_tensor *t, fx_dtype real_dtype);
cJSON *gold_json_read(const char *path); /* NULL if it does not exist or is not JSON */

/* ---- one case -------------------------------------------------------------------------------- */
struct gold_case {
    char name[128];        /* "onnx/node__abs": the rerun command's argument */
    const char *not_built; /* the operator's row in the table, or NULL */
    const char *not_built_why;
    bool failed;
    char why[768];
};

/* Marks the case as failed; the first message stays. */
void gold_fail(gold_case *c, const char *format, ...) FXI_PRINTF(2, 3);
/* True, and the case is marked, when `op` (or op/variant) is in the table of what is not built. */
bool gold_not_built(gold_case *c, const char *op, const char *variant);
/* Fails the case if the thread has an error record. */
void gold_check_record(gold_case *c);

typedef enum gold_kind {
    GOLD_POINTWISE,  /* every element by itself */
    GOLD_SINGLE,     /* the same, but recorded to single precision only */
    GOLD_CONTRACTION /* long sums: a small normalised mean square error is enough */
} gold_kind;
typedef enum gold_precision { GOLD_F64, GOLD_F32, GOLD_F16 } gold_precision;
typedef struct gold_rule {
    gold_kind kind;
    gold_precision precision;
    fx_dtype dtype; /* type of the result; FX_DTYPE_COUNT: any floating-point type */
} gold_rule;
/* Compares shape, element type and every value; what: "output y" or "gradient x". */
void gold_compare(gold_case *c, const char *what, const gold_tensor *want, fx_array *got,
                  gold_rule rule);

/* ---- fields of JSON objects ------------------------------------------------------------------ */
/* Each returns the field's value, or `otherwise` (NULL, false) if there is none of this kind, and
 * marks the field as understood. gold_any takes every kind. */
bool gold_has(const cJSON *object, const char *name); /* marks nothing */
const cJSON *gold_any(const cJSON *object, const char *name);
const cJSON *gold_list(const cJSON *object, const char *name);
double gold_number(const cJSON *object, const char *name, double otherwise);
bool gold_flag(const cJSON *object, const char *name);
const char *gold_text(const cJSON *object, const char *name, const char *otherwise);
void gold_unread(const cJSON *object); /* removes the marks */
/* Fails the case if the object has a field without a mark; what: "attributes", in the message. */
void gold_check_read(gold_case *c, const cJSON *object, const char *what);

/* ---- the run --------------------------------------------------------------------------------- */
typedef struct gold_run gold_run;
bool gold_selected(const gold_run *run, const char *name);
void gold_record(gold_run *run, const gold_case *c);
const char *gold_data(const gold_run *run); /* the data folder */
/* Every folder below `group` that holds a case.json and is not among the n names is a failure. */
void gold_unlisted(gold_run *run, const char *group, int n, const char *const *names);
/* A JSON file of the data folder that lists cases; NULL when it is missing. A damaged file is a
 * failure of its own. */
cJSON *gold_index(gold_run *run, const char *path);

void onnx_run_all(gold_run *run);
void torch_run_all(gold_run *run);
void nnlib_run_all(gold_run *run);

#endif
