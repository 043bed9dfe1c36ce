/* dist_group.c: runs collective operations of plans by a transport.
 *
 * Before an operation the members compare its description: kind, element type, sizes, root. This
 * costs one small operation. Without it, members that call different operations would wait for ever
 * or add unrelated numbers; with it they get an error that names the difference. The operands are
 * copied to buffers of the group, which a transport may write to even after the time limit.
 */
#include "dist_group.h"

#include "error.h"
#include "half.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

/* ---- what an operation is -------------------------------------------------------------------- */

typedef struct header {
    int64_t kind, fold, root, dtype, ndim, shape[FX_MAX_DIMS];
} header;

static header header_of(const fx_step *step)
{
    const fx_collective *w = &fx_step_collective(step)->what;
    header h = {.kind = w->kind, .dtype = step->out.dtype, .ndim = step->out.ndim};
    h.fold = w->kind == FX_COLLECTIVE_BROADCAST ? 0 : w->fold;
    h.root = w->kind == FX_COLLECTIVE_ALL_REDUCE ? 0 : w->root;
    for (int i = 0; i < step->out.ndim; i++)
        h.shape[i] = step->out.shape[i];
    return h;
}

/* Positive, because the members also exchange the negative, which must not overflow. */
static int64_t hash_of(const header *h)
{
    const unsigned char *p = (const unsigned char *)h;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *h; i++)
        hash = (hash ^ p[i]) * 1099511628211u;
    return (int64_t)(hash >> 2);
}

/* "all_reduce (mean) of 3×2 Float32" */
static void describe(const header *h, char *text, size_t size)
{
    static const char *const kinds[] = {"all_reduce", "reduce", "broadcast"};
    static const char *const folds[FX_REDUCE_COUNT] = {[FX_REDUCE_SUM] = " (sum)",
                                                       [FX_REDUCE_MAX] = " (max)",
                                                       [FX_REDUCE_MIN] = " (min)",
                                                       [FX_REDUCE_PROD] = " (prod)",
                                                       [FX_REDUCE_MEAN] = " (mean)"};
    int n = snprintf(text, size, "%s%s of ", kinds[h->kind],
                     h->kind == FX_COLLECTIVE_BROADCAST || !folds[h->fold] ? "" : folds[h->fold]);
    for (int64_t i = 0; i < h->ndim && n > 0 && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%lld", i ? "×" : "", (long long)h->shape[i]);
    if (n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, "%s%s", h->ndim ? " " : "",
                 fx_dtype_name((fx_dtype)h->dtype));
}

/* ---- operations of the transport ------------------------------------------------------------- */

static fx_status call(fx_dist *d, fxi_transport_call *c, char *why, size_t size)
{
    c->limit = d->limit;
    c->number = ++d->number;
    const fx_status status = d->transport->run(&d->group, c, why, size);
    if (status == FX_OK)
        return FX_OK;
    if (!*why)
        snprintf(why, size, "%s", fx_status_name(status));
    d->broken = true;
    return status;
}

static bool reserve(void **buffer, size_t *have, size_t want)
{
    if (want <= *have)
        return true;
    void *p = fxi_realloc(*buffer, want);
    if (p) {
        *buffer = p;
        *have = want;
    }
    return p != NULL;
}

/* Names the first member whose operation differs from that of rank 0, the same one everywhere. */
static fx_status blame(fx_dist *d, const header *mine, char *why, size_t size)
{
    const size_t bytes = sizeof *mine;
    if (!reserve(&d->in, &d->in_bytes, bytes) ||
        !reserve(&d->out, &d->out_bytes, bytes * (size_t)d->group.size))
        return FX_STATUS_MEMORY;
    memcpy(d->in, mine, bytes);
    fxi_transport_call c = {.kind = FXI_COLLECTIVE_GATHER,
                            .dtype = FX_DTYPE_U8,
                            .count = (int64_t)bytes,
                            .in = d->in,
                            .out = d->out};
    const fx_status status = call(d, &c, why, size);
    if (status != FX_OK)
        return status;
    const header *all = d->out;
    int other = 1;
    while (other < d->group.size - 1 && memcmp(&all[other], &all[0], bytes) == 0)
        other++;
    char a[120], b[120];
    describe(&all[other], a, sizeof a);
    describe(&all[0], b, sizeof b);
    snprintf(why, size, "rank %d calls %s, but rank 0 calls %s", other, a, b);
    return FX_STATUS_ARGUMENT;
}

/* Do all members run this operation? */
static fx_status agree(fx_dist *d, const header *mine, char *why, size_t size)
{
    if (!reserve(&d->in, &d->in_bytes, 16) || !reserve(&d->out, &d->out_bytes, 16))
        return FX_STATUS_MEMORY;
    const int64_t hash = hash_of(mine), both[] = {hash, -hash};
    memcpy(d->in, both, sizeof both);
    fxi_transport_call c = {.kind = FX_COLLECTIVE_ALL_REDUCE,
                            .fold = FX_REDUCE_MAX,
                            .dtype = FX_DTYPE_I64,
                            .count = 2,
                            .in = d->in,
                            .out = d->out};
    const fx_status status = call(d, &c, why, size);
    if (status != FX_OK)
        return status;
    const int64_t *extremes = d->out; /* the largest hash, and the negative of the smallest */
    return extremes[0] == -extremes[1] ? FX_OK : blame(d, mine, why, size);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool is_half(int64_t dtype)
{
    return dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_BF16;
}

/* 16-bit floats are added as Float32. */
static void widen(int64_t dtype, const void *from, float *to, int64_t n)
{
    const uint16_t *x = from;
    for (int64_t i = 0; i < n; i++)
        to[i] = dtype == FX_DTYPE_F16 ? fxi_f16_to_f32(x[i]) : fxi_bf16_to_f32(x[i]);
}

static void narrow(int64_t dtype, const float *from, void *to, int64_t n)
{
    uint16_t *y = to;
    for (int64_t i = 0; i < n; i++)
        y[i] = dtype == FX_DTYPE_F16 ? fxi_f32_to_f16(from[i]) : fxi_f32_to_bf16(from[i]);
}

static void divide(int64_t dtype, void *x, int64_t n, int size)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype == FX_DTYPE_F64)
            ((double *)x)[i] /= size;
        else
            ((float *)x)[i] /= (float)size;
}

/* ---- one operation --------------------------------------------------------------------------- */

static fx_status transfer(fx_dist *d, const header *h, int64_t n, const void *in, void *out,
                          char *why, size_t size)
{
    const bool folds = h->kind != FX_COLLECTIVE_BROADCAST, wide = folds && is_half(h->dtype);
    const int64_t dtype = wide ? FX_DTYPE_F32 : h->dtype;
    const size_t bytes = (size_t)n * fx_dtype_size((fx_dtype)dtype);
    if (!reserve(&d->in, &d->in_bytes, bytes + 1) || !reserve(&d->out, &d->out_bytes, bytes + 1))
        return FX_STATUS_MEMORY;
    if (wide)
        widen(h->dtype, in, d->in, n);
    else
        memcpy(d->in, in, bytes);
    const bool mean = folds && h->fold == FX_REDUCE_MEAN;
    fxi_transport_call c = {.kind = h->kind,
                            .fold = mean ? FX_REDUCE_SUM : h->fold,
                            .root = h->root,
                            .dtype = dtype,
                            .count = n,
                            .in = d->in,
                            .out = d->out};
    const fx_status status = n ? call(d, &c, why, size) : FX_OK;
    if (status != FX_OK)
        return status;
    if (h->kind == FX_COLLECTIVE_REDUCE && h->root != d->group.rank)
        memset(d->out, 0, bytes);
    if (mean)
        divide(dtype, d->out, n, d->group.size);
    if (wide)
        narrow(h->dtype, d->out, out, n);
    else
        memcpy(out, d->out, bytes);
    return FX_OK;
}

fx_status fxi_dist_run(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                       char *why, size_t size)
{
    fx_dist *d = (fx_dist *)(uintptr_t)self->user;
    const int64_t n = fx_tensor_length(&step->out);
    const header h = header_of(step);
    char reason[FXI_DIST_WHY] = "", what[120];
    fxi_mutex_lock(&d->lock);
    fx_status status = FX_OK;
    if (d->broken) {
        status = FX_STATUS_IO;
        snprintf(why, size, "an earlier operation failed: %s", d->why);
    } else {
        status = agree(d, &h, reason, sizeof reason);
        if (status == FX_OK)
            status = transfer(d, &h, n, in, out, reason, sizeof reason);
        /* The other members wait in this operation. The next operation of this member would be
         * matched with it, so the group cannot be used any more. */
        d->broken = d->broken || status == FX_STATUS_MEMORY;
        describe(&h, what, sizeof what);
        snprintf(why, size, "%s, operation %lld: %s", what, (long long)d->number,
                 *reason ? reason : fx_status_name(status));
        if (d->broken)
            snprintf(d->why, sizeof d->why, "%s", *reason ? reason : fx_status_name(status));
    }
    fxi_mutex_unlock(&d->lock);
    return status;
}

void fxi_dist_begin(fx_dist *d, const fxi_transport *transport, const fxi_transport_group *group,
                    double limit)
{
    *d = (fx_dist){.transport = transport, .group = *group, .limit = limit};
    d->communicator = (fx_communicator){.fxi_size = sizeof d->communicator,
                                        .name = group->library,
                                        .rank = group->rank,
                                        .size = group->size,
                                        .user = d,
                                        .run = fxi_dist_run};
    d->communicator.name = d->group.library;
    fxi_mutex_init(&d->lock);
}

void fxi_dist_end(fx_dist *d)
{
    fxi_mutex_destroy(&d->lock);
    fxi_free(d->in);
    fxi_free(d->out);
}
