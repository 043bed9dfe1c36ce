/* sim_conv.h: what the simulated cuDNN and MIOpen share: convolutions as plain loops. */
#ifndef SIM_CONV_H
#define SIM_CONV_H

#include "sim_blas.h"

enum { SIM_AXES = 5, SIM_SPACE = 3, SIM_CONV_WORK = 192 };
typedef enum sim_conv_kind { SIM_FORWARD, SIM_DATA, SIM_WEIGHT } sim_conv_kind;

/* Batch, channels, space; of a kernel: channels of y, channels of x, space. */
typedef struct sim_tensor {
    sim_type type;
    int n, size[SIM_AXES], stride[SIM_AXES]; /* a kernel is dense */
} sim_tensor;

typedef struct sim_conv {
    sim_call call; /* first: the queue frees it */
    sim_conv_kind kind;
    sim_tensor x, y, w;
    int space, pad[SIM_SPACE], stride[SIM_SPACE], dilation[SIM_SPACE], groups;
    bool flips; /* false: a cross-correlation */
    bool tf32;  /* factors are rounded to TensorFloat-32 */
} sim_conv;

/* Do sizes and types agree? */
bool sim_conv_fits(const sim_conv *c);
/* Queues a copy of the convolution, of whose `call` the caller sets only `milliseconds`. It uses
 * SIM_CONV_WORK bytes of work space. `at` has x, w and y. Returns the driver's error; −1 if the
 * simulated driver is not loaded or memory is exhausted.
 */
int sim_conv_queue(const char *driver, const char *name, const sim_conv *c, const void *const at[3],
                   void *work, void *stream);

#endif
