/* conform.h: the conformance runner: one table of operation cases for all backends.
 *
 * A row of the table is an operation with a function that builds the expression, the
 * shapes, element types and domains of its inputs, and how close the result must come. The runner
 * expands rows into cases: row × type × shape × variant. A case runs on the device under test and
 * on `ref` in Float64 (integers: in their own type), where it is always built from plain contiguous
 * arrays.
 *
 * Variants (layout of the inputs on the device under test; the values stay the same):
 *   plain      contiguous
 *   strided    a permuted, stepped and reversed view into a larger array full of NaN
 *   unaligned  borrowed memory that begins one element late
 *   broadcast  constant along an axis, which has stride 0
 *   special    contiguous, with NaN, ±Inf and −0.0 (integers: the ends of their range) sprinkled in
 * Shapes with a 0 are the empty cases. A case's name is its rerun command:
 *   conform_runner conform/matmul.f32.m17n5k129.nt.strided@CPU
 */
#ifndef CFLUX_TEST_CONFORM_H
#define CFLUX_TEST_CONFORM_H

#include <cflux.h>

enum { CF_MAX_IN = 4, CF_MAX_PARAMS = 8, CF_NAME = 160 };

typedef enum cf_domain {
    CF_ANY,           /* (−2, 2), integers −9 … 9 (U8: all) */
    CF_WIDE,          /* (−8, 8) */
    CF_POS,           /* (0.2, 3), integers 1 … 9 */
    CF_NONZERO,       /* ±(0.3, 2.3), integers ±(1 … 9) */
    CF_UNIT,          /* (−0.95, 0.95) */
    CF_ABOVE1,        /* (1.1, 4) */
    CF_PROB,          /* (0.05, 0.95) */
    CF_HUGE,          /* ±1e12, for conversions */
    CF_TIES,          /* few distinct numbers: −1, −0.5 … 1 */
    CF_BOOL,          /* a Bool input in every type of the case */
    CF_INDEX,         /* I64 or I32, 0 … parameter 0 − 1 */
    CF_INDEX_DISTINCT /* the same; distinct along every axis of at most parameter 0 elements */
} cf_domain;

typedef enum cf_tolerance {
    CF_POINT,   /* each element: f32 1.3e-6 relative + 1e-5 absolute; f64 1e-12 + 1e-13 */
    CF_NMSE,    /* Σ(y−r)² / Σr²: f32 1e-11, f64 1e-24 */
    CF_ROUNDED, /* CF_NMSE, but forty times its limit for 16-bit floats: several roundings */
    CF_EXACT    /* equal values */
} cf_tolerance;

enum {
    CF_NO_GRAD = 1, /* not differentiable, or the gradient is not the derivative (stop_gradient) */
    CF_NO_SPECIAL = 2,      /* the result with NaN or Inf is not specified */
    CF_SAME_TYPE = 4,       /* ref computes in the case's own type: conversions, random numbers */
    CF_NO_SECOND = 8,       /* the second derivative is not tested */
    CF_NO_BROADCAST = 16,   /* singular where all elements are equal */
    CF_NO_DIFFERENCES = 32, /* not smooth at the inputs: gradients are only compared with ref's */
    CF_OWN_TYPES = 64       /* the operation checks types only when it runs */
};

#define CF_T(t)  (1u << (unsigned)FX_DTYPE_##t)
#define CF_REAL  (CF_T(F32) | CF_T(F64))
#define CF_HALF  (CF_REAL | CF_T(F16) | CF_T(BF16))
#define CF_INT   (CF_T(I32) | CF_T(I64) | CF_T(U8))
#define CF_NUM   (CF_REAL | CF_INT)
#define CF_ALL   (CF_HALF | CF_INT | CF_T(BOOL))
#define CF_MIXED (CF_NUM | CF_T(BOOL))

typedef fx_array *(*cf_build)(fx_array *const *x, const int64_t *p);

typedef struct cf_row {
    const char *name;
    const char *covers; /* functions, separated by blanks; NULL: fx_ + name */
    cf_build build;
    const char *const *shapes; /* NULL-terminated; see cf_shape. A leading '+' is for --full only */
    const char *perf;          /* the shape that perf times; NULL: not timed */
    int nin;
    cf_domain domain[CF_MAX_IN];
    unsigned types;
    cf_tolerance tolerance;
    unsigned flags;
} cf_row;

extern const cf_row cf_elementwise_rows[], cf_shape_rows[], cf_contract_rows[], cf_resample_rows[],
    cf_attention_rows[];                /* end: name NULL */
extern const cf_row *const cf_tables[]; /* end: NULL */

/* "name=17x5 5x129:1,2": inputs' sizes ("s": 0-d), then parameters. Without a name the text of the
 * sizes is the name. */
typedef struct cf_shape {
    char name[96];
    int nin;
    int ndim[CF_MAX_IN];
    int64_t sizes[CF_MAX_IN][FX_MAX_DIMS];
    int64_t param[CF_MAX_PARAMS];
    bool full_only;
} cf_shape;
bool cf_parse_shape(const char *text, cf_shape *out); /* false: malformed */

typedef enum cf_variant {
    CF_PLAIN,
    CF_STRIDED,
    CF_UNALIGNED,
    CF_BROADCAST,
    CF_SPECIAL,
    CF_VARIANTS
} cf_variant;
extern const char *const cf_variant_names[CF_VARIANTS];
extern const char *const cf_type_names[FX_DTYPE_COUNT];

typedef struct cf_case {
    const cf_row *row;
    cf_shape shape;
    fx_dtype dtype;
    cf_variant variant;
    char name[CF_NAME]; /* without mode suffix and device: "conform/add.f32.5x7.strided" */
} cf_case;

/* The elements of one input: reals in `real`, integers in `integer`. */
typedef struct cf_values {
    fx_dtype dtype;
    int ndim;
    int64_t sizes[FX_MAX_DIMS], n;
    double *real;
    int64_t *integer;
} cf_values;
bool cf_make_values(const cf_case *c, int input, cf_values *out);
void cf_free_values(cf_values *v);
bool cf_is_real(fx_dtype dtype);
/* The values as an array on the device, laid out as the variant says. */
fx_array *cf_array(fx_device *device, const cf_values *v, cf_variant variant);
/* The values as a contiguous array on ref, reals in `dtype`. */
fx_array *cf_ref_array(const cf_values *v, fx_dtype dtype);
fx_device *cf_ref_device(void);

/* The elements of any array, as doubles or as int64_t. */
typedef struct cf_result {
    fx_dtype dtype;
    int ndim;
    int64_t sizes[FX_MAX_DIMS], n;
    double *real;     /* real results */
    int64_t *integer; /* integer results */
} cf_result;
bool cf_read(fx_array *x, cf_result *out);
void cf_free_result(cf_result *r);
/* Compares got with want; on failure writes why. */
bool cf_close(const cf_result *got, const cf_result *want, cf_tolerance tolerance, char *why,
              size_t size);

/* The outcome of one case. */
typedef enum cf_outcome { CF_PASS, CF_FAIL, CF_UNSUPPORTED, CF_SKIP } cf_outcome;

typedef struct cf_options {
    fx_device *device;
    const char *device_name;
    bool full, verbose;
    int sample;           /* N: one of the first N cases of a row runs, and every N-th after it */
    uint64_t sample_seed; /* chooses which of the first; 0: the first */
    int shard, shards;    /* this process runs part `shard` (from 0) of `shards` parts */
    int64_t graphs;       /* number of graphs of mixed types; 0: the default of the run */
    uint64_t seed;        /* seed of the first random graph */
    const char *const *filters;
    int nfilters;
} cf_options;

typedef struct cf_tally {
    int passed, failed, unsupported, xfail, skipped;
} cf_tally;

typedef cf_outcome (*cf_mode_fn)(const cf_options *o, const cf_case *c, char *why, size_t size);
cf_outcome cf_run_test(const cf_options *o, const cf_case *c, char *why, size_t size);
cf_outcome cf_run_grad(const cf_options *o, const cf_case *c, char *why, size_t size);
cf_outcome cf_run_second(const cf_options *o, const cf_case *c, char *why, size_t size);
cf_outcome cf_run_types(const cf_options *o, const cf_case *c, char *why, size_t size);
cf_outcome cf_run_threads(const cf_options *o, const cf_case *c, char *why, size_t size);
cf_outcome cf_run_replay(const cf_options *o, const cf_case *c, char *why, size_t size);
/* The number of kernels that ran on the device under test; those of ref do not count. */
extern uint64_t cf_device_kernels;
/* Converts the thread's error record to an outcome and a message. */
cf_outcome cf_error_outcome(char *why, size_t size);

bool cf_selected(const cf_options *o, const char *name);
/* Does the next unit of work belong to this shard? A unit is a row in one element type, or a random
 * graph. Two units have few kernels in common, so few kernels are compiled twice. */
bool cf_in_shard(const cf_options *o);
/* Counts one outcome under its name, judged by what the backend declared; prints failures. */
void cf_count(const cf_options *o, cf_tally *t, const char *name, cf_outcome outcome,
              const char *why);

int cf_perf(const cf_options *o);
int cf_support(const cf_options *o);
void cf_random_graphs(const cf_options *o, cf_tally *t);
void cf_replayed_graphs(const cf_options *o, cf_tally *t);
void cf_mixed_graphs(const cf_options *o, cf_tally *t);
void cf_huge_sizes(const cf_options *o, cf_tally *t);

/* One declaration of a backend; `pattern` is a part of a case's full name. */
typedef struct cf_declaration {
    const char *device, *pattern, *reason;
    bool xfail; /* true: gives a wrong result; false: fails with FX_STATUS_UNSUPPORTED */
} cf_declaration;
const cf_declaration *cf_declared(const char *device, const char *name);
/* Has the device no Float64, and is this message the refusal for that reason? */
bool cf_lacks_f64(const fx_device *device, const char *why);

/* Can the two arrays be broadcast together? (conform_graphs.c) */
bool cf_broadcasts(fx_array *a, fx_array *b);

/* Coverage: checks that every function of ops.h has a row, and that every primitive of op.def was
 * reached. */
void cf_mark_primitives(fx_array *x);
int cf_check_coverage(const fx_device *device,
                      bool everything_ran); /* number of failures, printed */

#endif
