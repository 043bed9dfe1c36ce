/* divided_batch.c: see divided_batch.h. */
#include "divided_batch.h"

#include "primitives.h"

static _Thread_local const fx_communicator *members;

const fx_communicator *fxi_members(void)
{
    return members;
}

const fx_communicator *fxi_members_set(const fx_communicator *c)
{
    const fx_communicator *before = members;
    members = c && c->size > 1 ? c : NULL;
    return before;
}

fx_array *fxi_over_members(fx_array *x)
{
    return fxi_collective(&(const fx_collective){.communicator = fxi_members(),
                                                 .kind = FX_COLLECTIVE_ALL_REDUCE,
                                                 .fold = FX_REDUCE_SUM},
                          x);
}
