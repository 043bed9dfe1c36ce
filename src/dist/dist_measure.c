/* dist_measure.c: times the functions of the transport's library itself. cflux bench allreduce
 * prints these times beside its own. */
#include "dist_group.h"

#include <math.h>

typedef struct measurement {
    bool link;
    int64_t runs;
    double seconds; /* out */
} measurement;

static fx_status ready(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    return fxi_dist_buffers(d, (size_t)m->n * sizeof(float), why, size);
}

static fx_status move(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    measurement *w = m->out;
    float *x = d->in;
    for (int64_t i = 0; i < m->n; i++)
        x[i] = 1;
    const fxi_transport_call c = {.kind = FX_COLLECTIVE_ALL_REDUCE,
                                  .fold = FX_REDUCE_SUM,
                                  .dtype = FX_DTYPE_F32,
                                  .count = m->n,
                                  .in = d->in,
                                  .out = d->out};
    return d->transport->measure(&d->group, &c, w->link, w->runs, &w->seconds, why, size);
}

static double measure(const char *op, fx_dist *d, int64_t n, int64_t runs, bool link)
{
    measurement w = {.link = link, .runs = runs, .seconds = NAN};
    /* Members with other arguments would wait for each other. */
    fxi_dist_header what = fxi_dist_measurement;
    what.fold = link;
    what.ndim = 2;
    what.shape[0] = n;
    what.shape[1] = runs;
    const fxi_dist_move how = {.what = &what, .n = n, .out = &w, .ready = ready, .move = move};
    char why[FXI_DIST_WHY] = "";
    fx_status status = fxi_dist_check(op, d, 0);
    if (status == FX_OK && (n < 1 || n > FXI_EXCHANGE_MOST || runs < 1))
        status = fx_fail(FX_STATUS_ARGUMENT, op,
                         "%lld runs with %lld elements, expected at least 1 run and 1 to %d "
                         "elements",
                         (long long)runs, (long long)n, (int)FXI_EXCHANGE_MOST);
    if (status == FX_OK && d->group.size == 1)
        status = fx_fail(FX_STATUS_UNSUPPORTED, op, "one process moves no data");
    if (status == FX_OK && !d->transport->measure)
        status =
            fx_fail(FX_STATUS_UNSUPPORTED, op, "%s: its plugin measures nothing", d->group.library);
    if (status != FX_OK)
        return NAN;
    status = fxi_dist_operation(d, &how, why, sizeof why);
    if (status != FX_OK)
        fx_fail(status, op, "%s, rank %d of %d: %s", d->group.library, (int)d->group.rank,
                (int)d->group.size, why);
    return status == FX_OK ? w.seconds : NAN;
}

double fx_dist_time_sum(fx_dist *d, int64_t n, int64_t runs)
{
    return measure("dist_time_sum", d, n, runs, false);
}

double fx_dist_time_link(fx_dist *d, int64_t n, int64_t runs)
{
    return measure("dist_time_link", d, n, runs, true);
}
