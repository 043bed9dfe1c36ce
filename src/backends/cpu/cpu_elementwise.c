/* cpu_elementwise.c: elementwise steps. Their programs are made once, with the plan, and run by the
 * tile interpreter (cpu_program.c). The epilogues of products and convolutions are programs too.
 *
 * Results so large that they leave every cache before they are read are written past the caches:
 * an ordinary store would first read the memory that it overwrites. A result that replaces an
 * operand is in the cache already, so it is stored as usual.
 */
#include "cpu_program.h"
#include "strided.h"
#include <string.h>

/* Outputs of at least this many bytes bypass the caches. */
static const int64_t STREAM_BYTES = (int64_t)64 << 20;

fx_status fxi_cpu_elementwise_prepare(fx_step *step)
{
    /* The last instruction computes the step's output; `more` lists the registers of the others. */
    const fx_elementwise_step *e = fx_step_elementwise(step);
    fxi_program_spec spec = {.program = e->program,
                             .nin = step->nin,
                             .nout = 1 + e->more.n,
                             .in = step->in,
                             .length = fx_tensor_length(&step->out),
                             .stretches = true,
                             .out = {(uint8_t)(step->nin + e->program.n - 1)}};
    memcpy(spec.out + 1, e->more.reg, (size_t)e->more.n);
    return fxi_program_make(&spec, &step->ready);
}

void fxi_cpu_program_release(fx_step *step)
{
    fxi_program_free(step->ready);
}

/* Donation: the planner lets a result overwrite an operand that nothing reads afterwards. */
static bool replaces_operand(const fx_step *step, const void *const *in, const void *out)
{
    for (int k = 0; k < step->nin; k++)
        if (in[k] == out)
            return true;
    return false;
}

fx_status fxi_cpu_elementwise(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    /* `prepare` refused the step: an instruction has no loop for its type. */
    if (!step->ready)
        return fxi_cpu_no_dtype(step, step->out.dtype);
    const int32_t more = fx_step_elementwise(step)->more.n;
    void *outs[FXI_PROGRAM_OUTPUTS];
    outs[0] = out;
    for (int k = 0; k < more; k++)
        outs[1 + k] = run->more[k];
    fxi_program_args args = {.in = in, .out = outs, .to = fx_tensor_length(&step->out)};
    args.stream = args.to * (int64_t)fxi_cpu_size(step->out.dtype) >= STREAM_BYTES;
    for (int k = 0; k < 1 + more && args.stream; k++)
        args.stream = !replaces_operand(step, in, outs[k]);
    fxi_program_run_parallel(step->ready, &args);
    return FX_OK;
}

/* ---- epilogues of contractions --------------------------------------------------------------- */
/* An operand of an epilogue as one axis, for a product whose axes have another order in memory. The
 * operand has the same order or is one number, so the epilogue can run along memory. */
static fx_tensor one_axis(const fx_tensor *t, int64_t length)
{
    int64_t reach = 0;
    for (int d = 0; d < t->ndim; d++)
        reach += t->shape[d] == 1 ? 0 : t->stride[d];
    return (fx_tensor){.dtype = t->dtype, .ndim = 1, .shape = {length}, .stride = {reach != 0}};
}

/* Copies all instructions but the first, which the product computes: an addition. Its result is now
 * in register 0, and the registers of all later results are one lower. */
static fx_program without_addition(fx_program p, int nin, fx_instr *to)
{
    for (int k = 1; k < p.n; k++) {
        fx_instr *ins = &to[k - 1];
        *ins = p.instr[k];
        for (int s = 0; s < ins->nsrc; s++)
            if (ins->src[s] >= nin)
                ins->src[s] = (uint8_t)(ins->src[s] == nin ? 0 : ins->src[s] - 1);
    }
    return (fx_program){to, p.n - 1};
}

/* Only Float32 and Float64: those products are stored exactly as they are computed. A 16-bit
 * product is computed in Float32 and would be rounded only after the epilogue, but without fusion
 * also before it. So results would depend on whether the planner fused. */
fx_status fxi_cpu_epilogue_prepare_rest(fx_step *step, int added)
{
    fx_tensor in[FXI_PROGRAM_OPERANDS];
    fx_instr rest[FXI_PROGRAM_OPERANDS];
    const int dtype = step->out.dtype, nin = step->nin - 1;
    fx_program epilogue = fx_step_program(step);
    if (!fx_step_has_epilogue(step) || (added && epilogue.n == 1))
        return FX_OK;
    if ((dtype != FX_DTYPE_F32 && dtype != FX_DTYPE_F64) || nin > FXI_PROGRAM_OPERANDS ||
        epilogue.n > FXI_PROGRAM_OPERANDS)
        return FX_STATUS_UNSUPPORTED;
    /* Operand 0 is the product itself; in[0] and in[1] of the step are the factors, which the
     * epilogue does not read. */
    for (int k = 0; k < nin; k++)
        in[k] = k ? step->in[k + 1] : step->out;
    if (step->cls == FX_CLASS_MATMUL &&
        !fxi_is_dense(step->out.ndim, step->out.shape, step->out.stride))
        for (int k = 0; k < nin; k++)
            in[k] = one_axis(&in[k], fx_tensor_length(&step->out));
    if (added) {
        epilogue = without_addition(epilogue, nin, rest);
        /* The remaining instructions do not read this operand. As a single number it is not loaded
         * either. */
        memset(in[added - 1].stride, 0, sizeof in[added - 1].stride);
    }
    const fxi_program_spec spec = {.program = epilogue,
                                   .nin = nin,
                                   .nout = 1,
                                   .in = in,
                                   .length = fx_tensor_length(&step->out),
                                   .stretches = true,
                                   .out = {(uint8_t)(nin + epilogue.n - 1)}};
    return fxi_program_make(&spec, &step->ready);
}

fx_status fxi_cpu_epilogue_prepare(fx_step *step)
{
    return fxi_cpu_epilogue_prepare_rest(step, 0);
}

/* Runs the epilogue in place: the program reads and writes the product's memory. Its other operands
 * are the step's inputs from in[2] on. */
static void finish(const fxi_finish *f, int64_t from, int64_t to,
                   void (*run)(const fxi_program *p, const fxi_program_args *args))
{
    const void *operands[FXI_PROGRAM_OPERANDS];
    if (!fx_step_has_epilogue(f->step))
        return;
    for (int k = 0; k < f->step->nin - 1; k++)
        operands[k] = k ? f->in[k + 1] : f->out;
    void *out = f->out;
    const bool matmul = f->step->cls == FX_CLASS_MATMUL;
    run(matmul ? fxi_cpu_matmul_epilogue(f->step) : f->step->ready,
        &(fxi_program_args){.in = operands, .out = &out, .from = from, .to = to});
}

void fxi_cpu_finish(const fxi_finish *f)
{
    finish(f, 0, fx_tensor_length(&f->step->out), fxi_program_run_parallel);
}

/* Runs in the calling thread, for kernels that call it from their own parts while the elements are
 * still in the cache. */
void fxi_cpu_finish_range(const fxi_finish *f, int64_t from, int64_t to)
{
    finish(f, from, to, fxi_program_run);
}
