/* dist_narrow.c: sums and means of Float32 whose elements are sent as BFloat16.
 *
 * Each member adds up an equal share of the elements, in Float32 and in the order of the ranks, and
 * all members get its result. So all of them have the same bits, every time. An element is rounded
 * twice: before it is sent to the member that adds it up, and as the result. Each of n members
 * sends and receives (n−1)/n·S bytes for S bytes of Float32.
 */
#include "dist_group.h"
#include "half.h"

#include <string.h>

/* The most elements that a member adds up at a time. */
enum { PART = 1 << 20 };

static int64_t share_of(const fx_dist *d, int64_t n)
{
    const int64_t size = d->group.size, even = (n + size - 1) / size;
    const int64_t most = FXI_EXCHANGE_MOST / size < PART ? FXI_EXCHANGE_MOST / size : PART;
    return even < most ? even : most;
}

size_t fxi_dist_narrow_bytes(const fx_dist *d, const fxi_dist_move *m)
{
    return (size_t)(share_of(d, m->what->narrow) * d->group.size) * sizeof(uint16_t);
}

static void add_up(const uint16_t *all, uint16_t *out, int64_t n, int size, bool mean)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = fxi_bf16_to_f32(all[i]);
        for (int64_t k = 1; k < size; k++)
            sum += fxi_bf16_to_f32(all[k * n + i]);
        out[i] = fxi_f32_to_bf16(mean ? sum / (float)size : sum);
    }
}

/* Reduces at most one share for each member. */
static fx_status reduce_part(fx_dist *d, const float *in, float *out, int64_t n, int64_t share,
                             bool mean, char *why, size_t size)
{
    const int members = d->group.size;
    uint16_t *mine = d->in, *all = d->out;
    for (int64_t i = 0; i < n; i++)
        mine[i] = fxi_f32_to_bf16(in[i]);
    memset(mine + n, 0, (size_t)(share * members - n) * sizeof *mine);
    fxi_transport_call exchange = {.kind = FXI_COLLECTIVE_EXCHANGE,
                                   .dtype = FX_DTYPE_BF16,
                                   .count = share * members,
                                   .in = mine,
                                   .out = all};
    fx_status status = fxi_dist_call(d, &exchange, why, size);
    if (status != FX_OK)
        return status;
    add_up(all, mine, share, members, mean);
    fxi_transport_call gather = {.kind = FXI_COLLECTIVE_GATHER,
                                 .dtype = FX_DTYPE_BF16,
                                 .count = share,
                                 .in = mine,
                                 .out = all};
    status = fxi_dist_call(d, &gather, why, size);
    for (int64_t i = 0; i < n && status == FX_OK; i++)
        out[i] = fxi_bf16_to_f32(all[i]);
    return status;
}

fx_status fxi_dist_narrow(fx_dist *d, const fxi_dist_move *m, char *why, size_t size)
{
    const int64_t n = m->what->narrow, share = share_of(d, n), part = share * d->group.size;
    fx_status status = FX_OK;
    for (int64_t at = 0; at < n && status == FX_OK; at += part)
        status = reduce_part(d, (const float *)m->in + at, (float *)m->out + at,
                             n - at < part ? n - at : part, share, m->what->fold == FX_REDUCE_MEAN,
                             why, size);
    return status;
}
