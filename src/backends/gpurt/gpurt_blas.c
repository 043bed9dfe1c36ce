/* gpurt_blas.c: opens the vendor's library of matrix products, and describes steps as products that
 * the library computes; see gpurt_blas.h.
 */
#include "gpurt_blas.h"

#include "c_text.h"
#include "gpu_text.h"
#include "shared_library.h"
#include "this_process.h"

#include <stdio.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

static fxi_once opened = FXI_ONCE_INIT;
static char why_not[320]; /* "" if the library works */
static int warned;
static fxi_mutex handles = FXI_MUTEX_INIT;

void fxi_rt_blas_warn(const char *why)
{
    char text[640];
    if (__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text,
             "%s: %s; cflux's own kernels compute these matrix products, which takes longer, most "
             "of all for 16-bit numbers",
             fxi_rt_backend, why);
    fxi_rt_host->message(1, text);
}

static bool take(void *library, const char *file)
{
    return library && fxi_rt_take(library, file, fxi_rt_blas_entries, (size_t)fxi_rt_blas_nentries,
                                  why_not, sizeof why_not);
}

/* A library for another version of the driver would load a second driver, or refuse this one. */
static bool take_one_of(int driver)
{
    char reason[256];
    const char *newer = NULL;
    for (int k = 0; k < fxi_rt_blas_nfiles; k++) {
        const fxi_rt_blas_file *f = &fxi_rt_blas_files[k];
        void *library = fxi_rt_open_file(f->file, reason, sizeof reason);
        if (library && !fxi_rt_blas_suits(f->major, driver))
            newer = f->file;
        else if (take(library, f->file)) {
            *why_not = '\0'; /* an earlier library in the list was damaged, but this one works */
            return true;
        }
    }
    if (newer)
        snprintf(why_not, sizeof why_not, "%s is not for this driver, of version %d", newer,
                 driver);
    else if (!*why_not)
        snprintf(why_not, sizeof why_not,
                 "%s, which multiplies matrices, is not installed: there is no %s; %s",
                 fxi_rt_blas_names[0], fxi_rt_blas_files[0].file, fxi_rt_blas_install);
    return false;
}

static void open_once(void)
{
    const char *wanted = fxi_trusted_variable(fxi_rt_blas_variable);
    char reason[160];
    int driver = 0;
    fxi_rt.DriverVersion(&driver);
    if (!wanted || !*wanted) {
        take_one_of(driver);
        return;
    }
    if (strcmp(wanted, "off") == 0) {
        snprintf(why_not, sizeof why_not, "%s=off", fxi_rt_blas_variable);
        /* The user asked for this, so there is no warning. */
        __atomic_store_n(&warned, 1, __ATOMIC_RELAXED);
        return;
    }
    void *library = fxi_library_open(wanted, reason, sizeof reason);
    if (!library)
        snprintf(why_not, sizeof why_not, "%.80s, which %s names, cannot be opened: %.100s", wanted,
                 fxi_rt_blas_variable, reason);
    take(library, wanted);
}

const char *fxi_rt_blas_part(const char *name)
{
    if (!fxi_same_letters(name, fxi_rt_blas_names[0]) &&
        !fxi_same_letters(name, fxi_rt_blas_names[1]))
        return NULL;
    fxi_call_once(&opened, open_once);
    return why_not;
}

/* The library's handle for a device, made on first use and kept until the process ends. */
static bool has_handle(fxi_rt_device *d)
{
    char why[200];
    fxi_call_once(&opened, open_once);
    if (*why_not) {
        fxi_rt_blas_warn(why_not);
        return false;
    }
    fxi_mutex_lock(&handles);
    if (!d->blas && !d->no_blas && fxi_rt_select(d) == 0) {
        d->blas = fxi_rt_blas_begin(d, why, sizeof why);
        d->no_blas = !d->blas;
        if (d->no_blas)
            fxi_rt_blas_warn(why);
    }
    const bool has = d->blas != NULL;
    fxi_mutex_unlock(&handles);
    return has;
}

/* ---- reading a step -------------------------------------------------------------------------- */

/* One factor, op(X), of rows×columns: its columns or its rows must be dense. */
static bool read_factor(const fx_tensor *t, bool transposed, bool *out_transpose, int64_t *out_ld)
{
    const int64_t rows = t->shape[transposed], columns = t->shape[!transposed],
                  row = t->stride[transposed], column = t->stride[!transposed];
    if ((rows == 1 || row == 1) && (columns == 1 || column >= rows)) {
        *out_transpose = false;
        *out_ld = columns == 1 ? rows : column;
        return true;
    }
    *out_transpose = true;
    *out_ld = rows == 1 ? columns : row;
    return (columns == 1 || column == 1) && (rows == 1 || row >= columns);
}

/* The stride along an axis of the batch; 0 where the operand is repeated. */
static int64_t batch_stride(const fx_tensor *t, int axis)
{
    return axis < t->ndim ? fxi_gpu_stride(t, axis) : 0;
}

/* Libraries have one axis of batches: the batches of the step must follow each other at a constant
 * distance. */
static bool read_batches(const fx_step *s, fxi_rt_product *p)
{
    p->batches = 1;
    p->step_c = p->m * p->n;
    for (int d = 2; d < s->out.ndim; d++) {
        const int64_t a = batch_stride(&s->in[0], d), b = batch_stride(&s->in[1], d);
        if (s->out.shape[d] == 1)
            continue;
        if (p->batches == 1) {
            p->step_a = a;
            p->step_b = b;
        } else if (a != p->step_a * p->batches || b != p->step_b * p->batches)
            return false;
        p->batches *= s->out.shape[d];
    }
    if (p->batches > 1 && p->step_a == 0 && !p->transpose_b && p->step_b == p->ldb * p->n) {
        /* The same first factor for all: one product with more columns. */
        p->n *= p->batches;
        p->batches = 1;
        p->step_b = 0;
    }
    return p->step_a >= 0 && p->step_b >= 0;
}

/* A bias is the only epilogue that a library computes with the same bits as we do. cuBLASLt's ReLU
 * makes 0 of NaN, and both libraries round a 16-bit product once, after the bias, where steps round
 * twice. */
static bool read_end(const fx_step *s, fxi_rt_product *p)
{
    const fx_program end = fx_step_program(s);
    p->bias = end.n > 0;
    if (!p->bias)
        return true;
    bool vector = end.n == 1 && end.instr[0].op == FX_OP_ADD && s->nin == 3 &&
                  (p->dtype == FX_DTYPE_F32 || p->dtype == FX_DTYPE_F64);
    for (int d = 0; vector && d < s->in[2].ndim; d++)
        vector = s->in[2].stride[d] == (d == 0) || fxi_gpu_stride(&s->in[2], d) == 0;
    return vector && (p->m == 1 || s->in[2].stride[0] == 1);
}

static bool read_product(const fx_step *s, fxi_rt_product *p)
{
    const fx_matmul_step *what = fx_step_matmul(s);
    const int dtype = s->out.dtype;
    *p = (fxi_rt_product){.dtype = dtype,
                          .may_tf32 = what->precision != FX_PRECISION_HIGHEST,
                          .m = s->out.shape[0],
                          .n = s->out.shape[1],
                          .k = s->in[0].shape[!what->transpose_a]};
    return (dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
            dtype == FX_DTYPE_BF16) &&
           p->k > 0 && fx_tensor_length(&s->out) > 0 &&
           read_factor(&s->in[0], what->transpose_a, &p->transpose_a, &p->lda) &&
           read_factor(&s->in[1], what->transpose_b, &p->transpose_b, &p->ldb) &&
           read_batches(s, p);
}

bool fxi_rt_library_step(fxi_gpu_builder *b)
{
    fxi_rt_product p;
    if (b->step->cls != FX_CLASS_MATMUL || !read_product(b->step, &p) ||
        !has_handle(fxi_rt_of(b->device)))
        return false;
    if (read_end(b->step, &p))
        return fxi_rt_blas_product(b, &p);
    /* The planner makes two steps of it: the library's product saves more time than the second
     * launch costs. */
    fxi_gpu_too_much(b, "an end that %s does not compute", fxi_rt_blas_names[0]);
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

fx_status fxi_rt_blas_fail(fxi_rt_device *d, const char *operation, const char *call,
                           const char *error)
{
    char text[320];
    snprintf(text, sizeof text, "%s (%s): %s failed with %s", d->gpu.label, d->gpu.name, call,
             error ? error : "an unknown error");
    return fxi_rt_host->fail(FX_STATUS_DEVICE, operation, text);
}

fx_status fxi_rt_blas_enter(fxi_rt_device *d, const char *operation)
{
    const fxi_gpu_launch launch = {.operation = operation};
    const fx_status status =
        fxi_gpu_check(&d->gpu, operation, "selecting the device", fxi_rt_select(d));
    if (!status) {
        fxi_gpu_launched(&d->gpu, &launch);
        fxi_gpu_count(&fxi_gpu_counts.calls);
    }
    return status;
}
