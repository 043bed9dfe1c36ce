/* sim_blas.h: what the simulated cuBLASLt and rocBLAS share: a product as plain loops. The other
 * simulated libraries use its types and its calls of the simulated driver.
 */
#ifndef SIM_BLAS_H
#define SIM_BLAS_H

#include "sim.h"

typedef enum sim_type { SIM_F32, SIM_F64, SIM_F16, SIM_BF16, SIM_TYPES } sim_type;
size_t sim_type_size(sim_type t);
double sim_load(const char *bytes, sim_type t, int64_t i);
void sim_store(char *bytes, sim_type t, int64_t i, double v);
double sim_to_tf32(double v);

/* A matrix, column by column, in batches. */
typedef struct sim_matrix {
    const void *address;
    bool transposed;
    int64_t rows, columns, ld, batch_stride; /* as stored in memory, before transposing */
} sim_matrix;

typedef struct sim_product {
    sim_call call; /* first: the queue frees it */
    sim_type type;
    bool tf32;                /* factors are rounded to TensorFloat-32 */
    int64_t m, n, k, batches; /* C is m×n */
    sim_matrix a, b, c;
    bool bias;
    double alpha;
    size_t work; /* bytes of work space; if above 0, sums are computed in two halves */
} sim_product;

/* The bytes of work space that the simulated libraries request: above 0 for few results with long
 * sums. */
size_t sim_product_work(sim_type type, int64_t m, int64_t n, int64_t k, int64_t batches);
/* Queues a copy of the product, of whose `call` the caller sets only `milliseconds`; `bias` and
 * `work` may be NULL. Returns the driver's error; −1 if the simulated driver is not loaded. */
int sim_product_queue(const char *driver, const char *name, const sim_product *p, const void *bias,
                      void *work, void *stream);
/* Queues a call and takes it over: it is freed also after an error. Returns as sim_product_queue.
 */
int sim_call_queue(const char *driver, sim_call *call, void *stream);
/* Is the stream captured? */
bool sim_stream_captured(const char *driver, const void *stream);
/* The calling thread's device; −1: none. */
int sim_product_device(const char *driver);

#endif
