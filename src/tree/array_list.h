/* array_list.h: a growing list of arrays. Internal. */
#ifndef CFLUX_ARRAY_LIST_H
#define CFLUX_ARRAY_LIST_H

#include <cflux/tree.h>

typedef struct fxi_array_list {
    fx_array **items; /* freed by the owner with fxi_free */
    int32_t n, capacity;
    fx_status status; /* the first failure; after it nothing is added */
    const char *op;   /* operation name for messages */
} fxi_array_list;

/* Adds x. If x is an error array, or if the allocation fails, the list gets that status. */
void fxi_array_list_add(fxi_array_list *a, fx_array *x);

#endif
