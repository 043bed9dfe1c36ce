/* map_gradient.c: see map_gradient.h. */
#include "map_gradient.h"
#include "node.h"

typedef struct mapping {
    fx_map_user_fn f;
    void *user;
} mapping;

static fx_array *mapped(fx_array *x, void *user)
{
    const mapping *m = user;
    return fxi_is_no_gradient(x) ? x : m->f(x, m->user);
}

void *fxi_map_gradient(fx_map_user_fn f, void *user, void *gradient)
{
    return fx_fmap_with(mapped, &(mapping){f, user}, gradient);
}
