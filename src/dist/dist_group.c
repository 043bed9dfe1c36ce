/* dist_group.c: runs collective operations of plans by a transport, in host memory.
 *
 * The operands are copied to buffers of the group, which a transport may write to even after the
 * time limit.
 */
#include "dist_group.h"

#include "error.h"
#include "half.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

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

/* ---- in host memory -------------------------------------------------------------------------- */

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

/* The type in which elements travel. */
static int64_t wire_type(const fxi_dist_header *h)
{
    return h->kind != FX_COLLECTIVE_BROADCAST && is_half(h->dtype) ? FX_DTYPE_F32 : h->dtype;
}

static size_t wire_bytes(const fxi_dist_move *m)
{
    return (size_t)m->n * fx_dtype_size((fx_dtype)wire_type(m->what));
}

fx_status fxi_dist_buffers(fx_dist *d, size_t bytes, char *why, size_t size)
{
    if (reserve(&d->in, &d->in_bytes, bytes) && reserve(&d->out, &d->out_bytes, bytes))
        return FX_OK;
    snprintf(why, size, "no memory for %zu bytes", bytes);
    return FX_STATUS_MEMORY;
}

/* Called before the members agree, so that a member without memory can refuse. */
static fx_status get_buffers(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    return fxi_dist_buffers(d, wire_bytes(m) + 1, why, size);
}

static fx_status transfer(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const fxi_dist_header *h = m->what;
    const int64_t dtype = wire_type(h);
    const size_t bytes = wire_bytes(m);
    if (dtype != h->dtype)
        widen(h->dtype, m->in, d->in, m->n);
    else
        memcpy(d->in, m->in, bytes);
    const bool mean = h->kind != FX_COLLECTIVE_BROADCAST && h->fold == FX_REDUCE_MEAN;
    fxi_transport_call c = {.kind = h->kind,
                            .fold = mean ? FX_REDUCE_SUM : h->fold,
                            .root = h->root,
                            .dtype = dtype,
                            .count = m->n,
                            .in = d->in,
                            .out = d->out};
    const fx_status status = m->n ? fxi_dist_call(d, &c, why, size) : FX_OK;
    if (status != FX_OK)
        return status;
    if (h->kind == FX_COLLECTIVE_REDUCE && h->root != d->group.rank)
        memset(d->out, 0, bytes);
    if (mean)
        divide(dtype, d->out, m->n, d->group.size);
    if (dtype != h->dtype)
        narrow(h->dtype, d->out, m->out, m->n);
    else
        memcpy(m->out, d->out, bytes);
    return FX_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Notes the operation for cflux launch, which prints the last operation of a rank that died. A
 * longer old line is not cleared: its rest stays behind the line break. */
static void note_progress(fx_dist *d, const char *what)
{
    if (!d->progress)
        return;
    rewind(d->progress);
    fprintf(d->progress, "%lld, %s\n", (long long)d->number, what);
    fflush(d->progress);
}

static fx_status operate(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    char reason[FXI_DIST_WORD] = "";
    const fx_status refusal = m->ready(d, m, reason, sizeof reason);
    const fx_status status = fxi_dist_agree(d, m->what, refusal, reason, why, size);
    return status == FX_OK ? m->move(d, m, why, size) : status;
}

fx_status fxi_dist_operate(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    char reason[FXI_DIST_WHY] = "", what[120];
    fxi_mutex_lock(&d->lock);
    fx_status status = FX_STATUS_IO;
    if (d->broken) {
        snprintf(why, size, "an earlier operation failed: %s", d->why);
    } else {
        fxi_dist_describe(m->what, what, sizeof what);
        note_progress(d, what);
        status = operate(d, m, reason, sizeof reason);
        d->told = status != FX_OK;
        snprintf(why, size, "%s, operation %lld: %s", what, (long long)d->number,
                 *reason ? reason : fx_status_name(status));
        if (d->broken)
            snprintf(d->why, sizeof d->why, "%s", *reason ? reason : fx_status_name(status));
    }
    fxi_mutex_unlock(&d->lock);
    return status;
}

fx_status fxi_dist_run(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                       char *why, size_t size)
{
    fx_dist *d = (fx_dist *)(uintptr_t)self->user;
    const fxi_dist_header h = fxi_dist_header_of(step);
    const fxi_dist_move m = {.what = &h,
                             .n = fx_tensor_length(&step->out),
                             .in = in,
                             .out = out,
                             .ready = get_buffers,
                             .move = transfer};
    return fxi_dist_operate(d, &m, why, size);
}

void fxi_dist_refuse(const fx_communicator *self, fx_status status, const char *reason)
{
    fx_dist *d = (fx_dist *)(uintptr_t)self->user;
    static const fxi_dist_header none;
    char why[FXI_DIST_WHY] = "";
    fxi_mutex_lock(&d->lock);
    /* After an operation that failed on all members, the others do not wait for this one. */
    if (!d->broken && !d->told)
        fxi_dist_agree(d, &none, status, reason, why, sizeof why);
    if (d->broken && !*d->why)
        snprintf(d->why, sizeof d->why, "%s", why);
    d->told = false;
    fxi_mutex_unlock(&d->lock);
}

/* ---- groups ---------------------------------------------------------------------------------- */

void fxi_dist_begin(fx_dist *d, const fxi_transport *transport, const fxi_transport_group *group,
                    double limit)
{
    *d = (fx_dist){.transport = transport, .group = *group, .limit = limit};
    d->communicator = (fx_communicator){.fxi_size = sizeof d->communicator,
                                        .name = d->group.library,
                                        .rank = group->rank,
                                        .size = group->size,
                                        .user = d,
                                        .run = fxi_dist_run,
                                        .refuse = fxi_dist_refuse,
                                        .takes = fxi_dist_takes,
                                        .run_on = fxi_dist_run_on};
    d->words = fxi_malloc(fxi_dist_words_bytes(group->size));
    d->broken = !d->words;
    snprintf(d->why, sizeof d->why, "%s", d->words ? "" : "no memory");
    fxi_mutex_init(&d->lock);
}

void fxi_dist_end(fx_dist *d)
{
    fxi_mutex_destroy(&d->lock);
    fxi_free(d->in);
    fxi_free(d->out);
    fxi_free(d->words);
}
