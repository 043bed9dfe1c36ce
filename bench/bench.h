/* bench.h: what the files of the benchmark program share.
 *
 * A case has a name, which is also its name in the peer's script and in result files, and either a
 * setup and a step (the time of one step is sampled) or a measure function of its own. Names are
 * group/what-sizes: train/lenet-b64, reduce/sum-4096-strided. Shapes are written in the library's
 * order, first axis contiguous; "contiguous" and "strided" say along which axis a reduction runs.
 *
 * The time of a step includes what a program would pay: recording the graph, finding its plan,
 * running it, and closing the scope. Results are asked for, so nothing is left out because nobody
 * looks.
 */
#ifndef CFLUX_BENCH_H
#define CFLUX_BENCH_H

#include <cflux.h>

/* One measured quantity; times in microseconds unless the unit says otherwise. */
typedef struct bench_row {
    const char *unit;
    double median, min, max;
    int samples; /* that count */
    int taken;   /* with those during which another process held our core */
    bool contended;
    const char *skipped; /* why there is no such row here; NULL: there is */
} bench_row;

/* What a case keeps between its setup and its steps; objects are retained by the setup. */
typedef struct bench_state {
    const struct bench_case *which;
    void *model, *opt;
    fx_array *x, *y, *g, *w, *b;
} bench_state;

typedef struct bench_case bench_case;
struct bench_case {
    const char *name;
    void (*setup)(bench_state *s);
    void (*step)(bench_state *s);
    /* Instead of a step; false: could not be measured, and an error says why. */
    bool (*measure)(const bench_case *c, bench_row *out);
    fx_chain_layer *(*model)(void);  /* of networks */
    fx_array *(*op)(bench_state *s); /* of single operations */
    int64_t size[4];                 /* sizes of the input, by the case's own meaning */
    int64_t flag;
};

/* Tables, each ended by a case without a name. */
extern const bench_case bench_networks[], bench_arrays[], bench_products[], bench_overheads[],
    bench_loaders[], bench_files[], bench_devices[];

/* The network of that name. */
const bench_case *bench_network(const char *name);

/* The products as calls of a BLAS library (bench_blas.c); NULL when it cannot be loaded. */
const bench_case *bench_blas_open(const char *library);

extern double bench_seconds;      /* time to spend on a case */
extern const char *bench_program; /* the path of this executable */
extern const char *bench_device;  /* whose rows are asked for; NULL: none */

double bench_now(void); /* seconds, monotonic */
/* Samples the time of one call of step. */
void bench_sample(void (*step)(bench_state *), bench_state *s, bench_row *out);
/* The row of n values; they are sorted in place. */
void bench_row_of(double *values, int n, const char *unit, bench_row *out);

/* Makes the state of a case, and drops it. */
void bench_open(const bench_case *c, bench_state *s);
void bench_close(bench_state *s);

/* What the child of startup/first-prediction does: prints the moment of the first prediction and
 * the peak of resident memory in KiB. */
int bench_first_prediction(void);
/* Runs this program again, on the device; seconds to its first prediction and its memory in MiB. */
bool bench_start_child(double *seconds, double *mib);

#endif
