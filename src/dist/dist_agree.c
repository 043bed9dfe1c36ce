/* dist_agree.c: the members compare their operations before any data moves.
 *
 * The comparison is one small operation. Without it, members that run different operations would
 * hang, or add unrelated numbers; with it they fail with a message. A member that cannot continue
 * (no memory, an error of its own) takes part too and gives its reason: otherwise the others would
 * wait for it until the time limit.
 */
#include "dist_group.h"
#include "hash.h"

#include <stdio.h>
#include <string.h>

/* ---- what an operation is -------------------------------------------------------------------- */

enum { NO_STEP = -1, MEASUREMENT = -2 }; /* kinds that no step has */
const fxi_dist_header fxi_dist_no_step = {.kind = NO_STEP};
const fxi_dist_header fxi_dist_measurement = {.kind = MEASUREMENT};

fxi_dist_header fxi_dist_header_of(const fx_step *step)
{
    const fx_collective *w = &fx_step_collective(step)->what;
    fxi_dist_header h = {.kind = w->kind, .dtype = step->out.dtype, .ndim = step->out.ndim};
    h.device = fx_step_collective(step)->by_backend;
    h.fold = w->kind == FX_COLLECTIVE_BROADCAST ? 0 : w->fold;
    h.root = w->kind == FX_COLLECTIVE_ALL_REDUCE ? 0 : w->root;
    for (int i = 0; i < step->out.ndim; i++)
        h.shape[i] = step->out.shape[i];
    return h;
}

/* Positive, because the members also exchange the negative, which must not overflow. */
static int64_t hash_of(const fxi_dist_header *h)
{
    return (int64_t)(fxi_hash(h, sizeof *h, 0) >> 2);
}

/* "all_reduce (mean) of 3×2 Float32", "… in a GPU's memory" */
void fxi_dist_describe(const fxi_dist_header *h, char *text, size_t size)
{
    static const char *const kinds[] = {"all_reduce", "reduce", "broadcast"};
    static const char *const folds[FX_REDUCE_COUNT] = {[FX_REDUCE_SUM] = " (sum)",
                                                       [FX_REDUCE_MAX] = " (max)",
                                                       [FX_REDUCE_MIN] = " (min)",
                                                       [FX_REDUCE_PROD] = " (prod)",
                                                       [FX_REDUCE_MEAN] = " (mean)"};
    if (h->kind == NO_STEP) { /* a refusal has this header too, but its reason is shown instead */
        snprintf(text, size, "fx_dist_init(FX_NCCL)");
        return;
    }
    if (h->kind == MEASUREMENT) {
        snprintf(text, size, "a measurement of %s with %lld elements, %lld times",
                 h->fold ? "the link" : "sums", (long long)h->shape[0], (long long)h->shape[1]);
        return;
    }
    int n = snprintf(text, size, "%s%s of ", kinds[h->kind],
                     h->kind == FX_COLLECTIVE_BROADCAST || !folds[h->fold] ? "" : folds[h->fold]);
    for (int64_t i = 0; i < h->ndim && n > 0 && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%lld", i ? "×" : "", (long long)h->shape[i]);
    if (n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, "%s%s%s%s%s", h->ndim ? " " : "",
                 fx_dtype_name((fx_dtype)h->dtype), h->device ? " in a GPU's memory" : "",
                 h->fixed ? " in the order of ranks" : "", h->narrow ? " as BFloat16" : "");
}

/* ---- operations of the transport ------------------------------------------------------------- */

fx_status fxi_dist_call(fx_dist *d, fxi_transport_call *c, char *why, size_t size)
{
    c->limit = d->limit;
    c->beside = __atomic_load_n(&d->queue.running, __ATOMIC_RELAXED);
    c->number = ++d->calls;
    const fx_status status = d->transport->run(&d->group, c, why, size);
    if (status == FX_OK)
        return FX_OK;
    if (!*why)
        snprintf(why, size, "%s", fx_status_name(status));
    d->broken = true;
    return status;
}

/* The operation of a member, and whether it refuses. Sent to all members if operations differ or a
 * member refuses. */
typedef struct statement {
    fxi_dist_header what;
    int64_t refuses; /* an fx_status; FX_OK: it could continue */
    char why[FXI_DIST_REASON];
} statement;

static void say_refusal(const statement *w, int rank, char *why, size_t size)
{
    const char *reason = *w->why ? w->why : fx_status_name((fx_status)w->refuses);
    snprintf(why, size, "rank %d cannot continue: %s", rank, reason);
}

static void say_difference(const statement *all, int other, char *why, size_t size)
{
    char a[120], b[120];
    fxi_dist_describe(&all[other].what, a, sizeof a);
    fxi_dist_describe(&all[0].what, b, sizeof b);
    snprintf(why, size, "rank %d calls %s, but rank 0 calls %s", other, a, b);
}

/* Reports the first member that refuses, else the first whose operation differs from that of rank
 * 0. All members report the same one. FX_OK: all agree. */
static fx_status report_disagreement(const fx_dist *d, const statement *all, char *why, size_t size)
{
    int at = 0;
    while (at < d->group.size && all[at].refuses == FX_OK)
        at++;
    if (at < d->group.size) {
        say_refusal(&all[at], at, why, size);
        return (fx_status)all[at].refuses;
    }
    at = 1;
    while (at < d->group.size && memcmp(&all[at].what, &all[0].what, sizeof all[at].what) == 0)
        at++;
    if (at == d->group.size)
        return FX_OK;
    say_difference(all, at, why, size);
    return FX_STATUS_ARGUMENT;
}

/* All members exchange their statements; d->statements keeps them. */
static fx_status exchange(fx_dist *d, const fxi_dist_header *mine, fx_status refusal,
                          const char *reason, char *why, size_t size)
{
    statement *w = d->statements;
    memset(w, 0, sizeof *w);
    w->what = *mine;
    w->refuses = refusal;
    snprintf(w->why, sizeof w->why, "%s", reason ? reason : "");
    fxi_transport_call c = {.kind = FXI_COLLECTIVE_GATHER,
                            .dtype = FX_DTYPE_U8,
                            .count = (int64_t)sizeof *w,
                            .in = w,
                            .out = w + 1};
    const fx_status status = fxi_dist_call(d, &c, why, size);
    return status == FX_OK ? report_disagreement(d, w + 1, why, size) : status;
}

fx_status fxi_dist_vote(fx_dist *d, int64_t n, char *why, size_t size)
{
    fxi_transport_call c = {.kind = FX_COLLECTIVE_ALL_REDUCE,
                            .fold = FX_REDUCE_MAX,
                            .dtype = FX_DTYPE_I64,
                            .count = n,
                            .in = d->vote,
                            .out = d->votes};
    return fxi_dist_call(d, &c, why, size);
}

fx_status fxi_dist_agree(fx_dist *d, const fxi_dist_header *mine, fx_status refusal,
                         const char *reason, char *why, size_t size)
{
    /* In the usual case three numbers are enough: the largest hash, the negative of the smallest,
     * and whether one of them refuses. */
    const int64_t hash = hash_of(mine);
    d->vote[0] = hash;
    d->vote[1] = -hash;
    d->vote[2] = refusal != FX_OK;
    const fx_status status = fxi_dist_vote(d, 3, why, size);
    if (status != FX_OK)
        return status;
    if (d->votes[0] == -d->votes[1] && d->votes[2] == 0)
        return FX_OK;
    return exchange(d, mine, refusal, reason, why, size);
}

fx_status fxi_dist_share(fx_dist *d, fx_status mine, const char *reason, char *why, size_t size)
{
    return fxi_dist_agree(d, &fxi_dist_no_step, mine, reason, why, size);
}

size_t fxi_dist_statements_bytes(int size)
{
    return sizeof(statement) * ((size_t)size + 1);
}

/* ---- versions -------------------------------------------------------------------------------- */

fx_status fxi_dist_same_version(fx_dist *d, const char *mine, char *why, size_t size)
{
    enum { TEXT = 32 };
    fx_status status = fxi_dist_buffers(d, TEXT * (size_t)d->group.size, why, size);
    if (status != FX_OK)
        return status;
    memset(d->in, 0, TEXT);
    snprintf(d->in, TEXT, "%s", mine);
    fxi_transport_call c = {.kind = FXI_COLLECTIVE_GATHER,
                            .dtype = FX_DTYPE_U8,
                            .count = TEXT,
                            .in = d->in,
                            .out = d->out};
    status = fxi_dist_call(d, &c, why, size);
    if (status != FX_OK)
        return status;
    const char *all = d->out;
    int at = 1;
    while (at < d->group.size && memcmp(all + (size_t)at * TEXT, all, TEXT) == 0)
        at++;
    if (at == d->group.size)
        return FX_OK;
    snprintf(why, size,
             "rank %d has version %.31s of cflux, but rank 0 has version %.31s: start all ranks "
             "with one version",
             at, all + (size_t)at * TEXT, all);
    return FX_STATUS_UNSUPPORTED;
}
