/* array_list.h: a list of arrays that grows. Internal. */
#ifndef CFLUX_ARRAY_LIST_H
#define CFLUX_ARRAY_LIST_H

#include <cflux/tree.h>

typedef struct fxi_array_list {
    fx_array **items; /* freed by the owner with fxi_free */
    int32_t n, capacity;
    fx_status status; /* the first failure; then nothing is added any more */
    const char *op;   /* for messages */
} fxi_array_list;

/* Adds x; an error array and missing memory are failures. */
void fxi_array_list_add(fxi_array_list *a, fx_array *x);

#endif
