/* model_tally.h: counts arrays, parameters and bytes of an object for printing. Internal. */
#ifndef CFLUX_MODEL_TALLY_H
#define CFLUX_MODEL_TALLY_H

#include "text.h"

typedef struct fxi_tally {
    int64_t arrays, parameters; /* trainable ones only */
    int64_t other_arrays, other_parameters;
    int64_t bytes, bytes_julia; /* bytes of the elements; the same with Julia's headers */
    bool nonzero, nan, inf;     /* among trainable values */
    bool scan;                  /* the values are inspected too */
    fx_device *device;          /* common device of all arrays; NULL if they differ */
} fxi_tally;

/* Counts every array once. With `scan`, also inspects the values of evaluated arrays. */
fxi_tally fxi_tally_of(void *object, bool scan);
/* The bytes that Julia's summarysize counts for the structs of an object, without its arrays. */
int64_t fxi_struct_bytes(fx_text *text, const void *object);

#endif
