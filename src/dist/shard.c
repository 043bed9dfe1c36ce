/* shard.c: divides data, or the batches of a loader, among the members of a group. */
#include "dist_group.h"
#include "observations.h"

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void *part(fx_dist *d, void *data, bool ceil)
{
    int64_t n = 0;
    fx_status status = fxi_dist_check("dist_data", d, 0);
    if (status == FX_OK)
        status = fxi_obs_check("dist_data", data, &n);
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t w = d->group.size, r = d->group.rank, most = (n + w - 1) / w;
    const int64_t first = ceil ? lesser(r * most, n) : r * (n / w) + lesser(r, n % w);
    const int64_t end = ceil ? lesser(first + most, n) : first + n / w + (r < n % w);
    return fxi_obs_shard(data, first, end);
}

void *fx_dist_data(fx_dist *d, void *data)
{
    return part(d, data, false);
}

void *fx_dist_data_ceil(fx_dist *d, void *data)
{
    return part(d, data, true);
}

/* The seed and the pass of rank 0 give all members the same order. */
static fx_status same_order(fx_dist *d, fx_loader *loader)
{
    FXI_SCOPE;
    const fx_loader_position mine = fx_loader_tell(loader, NULL);
    int64_t numbers[] = {(int64_t)mine.seed, (int64_t)mine.pass, mine.batch};
    fx_array *theirs = fx_dist_bcast(d, fx_from(FX_DTYPE_I64, numbers, 3), 0);
    const fx_status status = fx_read_as(theirs, FX_DTYPE_I64, numbers, 3);
    return status != FX_OK
               ? status
               : fx_loader_seek(loader, (fx_loader_position){.seed = (uint64_t)numbers[0],
                                                             .pass = (uint64_t)numbers[1],
                                                             .batch = numbers[2]});
}

fx_loader *fx_dist_loader(fx_dist *d, fx_loader *loader)
{
    fx_status status = fxi_dist_check("dist_loader", d, 0);
    void *mine = status == FX_OK ? (void *)fx_loader_part(loader, d->group.rank, d->group.size)
                                 : (void *)fx_error_array(status);
    if (fx_is_error(mine) || d->group.size == 1)
        return mine;
    status = same_order(d, mine);
    return status == FX_OK ? mine : (void *)fx_error_array(status);
}
