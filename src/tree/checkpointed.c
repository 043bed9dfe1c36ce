/* checkpointed.c: calls of a model that keep only the inputs for the gradient. */
#include "context.h"
#include "error.h"
#include "recompute.h"
#include "tuples.h"

static void *recomputed(void *x, void *user)
{
    return fx_is_array(x) ? fxi_recomputed(x, *(const uint64_t *)user) : x;
}

void *fxi_checkpointed(void *model, int n, void *const *args)
{
    const fx_status listed = fxi_check_list("checkpointed", "inputs", n, args);
    if (listed != FX_OK)
        return fx_error_array(listed);
    FXI_SCOPE;
    uint64_t since = fxi_here()->seq;
    void *y = fxi_call(model, n, args);
    if (fx_is_array(y))
        return fx_keep(fxi_recomputed(y, since));
    return fx_keep(fxi_mirror("checkpointed", y, recomputed, &since));
}
