/* bench.h: declarations that the files of the benchmark program share.
 *
 * A case has a name, which the peer's script and result files also use, and either a setup and a
 * body (the program samples the time of one call of the body) or its own measure function. Names
 * are group/operation-sizes: train/lenet-b64, reduce/sum-4096-strided. Shapes are in the library's
 * order, first axis contiguous; "contiguous" and "strided" describe the axis along which a
 * reduction runs.
 *
 * The time of a call includes everything that a program pays: recording the graph, finding its
 * plan, running it, and closing the scope. The results are requested, so that no work is skipped.
 */
#ifndef CFLUX_BENCH_H
#define CFLUX_BENCH_H

#include <cflux.h>

/* One measured quantity; times are in microseconds unless `unit` differs. */
typedef struct bench_row {
    const char *unit;
    double median, min, max;
    int samples; /* number of samples used */
    int taken;   /* number of samples taken, with those disturbed by other processes */
    bool contended;
    double host;         /* of a GPU's row: microseconds of the host for one evaluation; else 0 */
    const char *skipped; /* why the case cannot be measured here; NULL: it was measured */
} bench_row;

/* The state of a case between its setup and its body. The setup retains the objects. */
typedef struct bench_state {
    const struct bench_case *which;
    void *model, *opt;
    fx_array *x, *y, *g, *w, *b;
} bench_state;

typedef struct bench_case bench_case;
struct bench_case {
    const char *name;
    void (*setup)(bench_state *s);
    void (*body)(bench_state *s);
    /* Used instead of a body. False if the measurement failed; the error says why. */
    bool (*measure)(const bench_case *c, bench_row *out);
    fx_chain_layer *(*model)(void);  /* for networks */
    fx_array *(*op)(bench_state *s); /* for single operations */
    int64_t size[4];                 /* sizes of the input; their meaning depends on the case */
    int64_t flag;
    const void *details; /* what one table of cases needs beyond these */
};

/* Tables of cases, each ended by a case without a name. */
extern const bench_case bench_networks[], bench_arrays[], bench_convolutions[], bench_products[],
    bench_overheads[], bench_loaders[], bench_files[], bench_devices[], bench_gpu[],
    bench_gpu_networks[], bench_scaling[];

/* The network with this name. */
const bench_case *bench_network(const char *name);

/* The products as calls of a BLAS library (bench_blas.c); NULL if it cannot be loaded. */
const bench_case *bench_blas_open(const char *library);

extern double bench_seconds;      /* time to spend on each case */
extern const char *bench_program; /* the path of this executable */
extern const char *bench_device;  /* device requested with --device; NULL: none */
extern fx_dist *bench_group;      /* the processes of --processes; NULL: this one alone */

extern bool bench_each_array; /* --each-array: gradients are averaged one by one */
extern bool bench_tiny;       /* --tiny: sizes of a test (bench_gpu.c) */

/* Measures evaluations that are queued on the device one after the other. */
bool bench_measure_queued(const bench_case *c, bench_row *out);
int64_t bench_size(int64_t n); /* n, or a smaller size with --tiny */

double bench_now(void); /* seconds, monotonic */
/* Samples the time of one call of the body. */
void bench_sample(void (*body)(bench_state *), bench_state *s, bench_row *out);
/* Fills in the row from n values, which are sorted in place. */
void bench_row_of(double *values, int n, const char *unit, bench_row *out);

/* Make and free the state of a case. */
void bench_open(const bench_case *c, bench_state *s);
void bench_close(bench_state *s);

/* Runs in the child process of start/…: prints the time of the first prediction, the peak of
 * resident memory in KiB, and the predicted number. */
int bench_first_prediction(void);
/* The same for the first training step of the digit demo's network, on random images. */
int bench_first_step(void);
/* Starts this program again, on the device, with --first-prediction or --first-step. Gives the
 * seconds until the first prediction or training step, and the peak of memory in MiB. False if the
 * child fails. */
bool bench_start_child(const char *option, double *seconds, double *mib);
int bench_print_start(double value);

#endif
