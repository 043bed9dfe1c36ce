/* shard.c: divides data among the members of a group. */
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
    const int64_t last = ceil ? lesser(first + most, n) : first + n / w + (r < n % w);
    return fxi_obs_shard(data, first, last);
}

void *fx_dist_data(fx_dist *d, void *data)
{
    return part(d, data, false);
}

void *fx_dist_data_ceil(fx_dist *d, void *data)
{
    return part(d, data, true);
}
