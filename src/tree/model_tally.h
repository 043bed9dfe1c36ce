/* model_tally.h: arrays, parameters and bytes of an object, as they are printed. Internal. */
#ifndef CFLUX_MODEL_TALLY_H
#define CFLUX_MODEL_TALLY_H

#include "text.h"

typedef struct fxi_tally {
    int64_t arrays, parameters; /* trainable */
    int64_t other_arrays, other_parameters;
    int64_t bytes, bytes_julia; /* of the elements; with Julia's headers */
    bool nonzero, nan, inf;     /* of the trainable ones */
    bool scan;                  /* look at the values? */
    fx_device *device;          /* of all arrays; NULL when they differ */
} fxi_tally;

/* Counts every array once; `scan`: looks at the values of those that are evaluated. */
fxi_tally fxi_tally_of(void *object, bool scan);
/* The bytes that Julia's summarysize counts for the structs of an object, its arrays aside. */
int64_t fxi_struct_bytes(fx_text *text, const void *object);

#endif
