/* check_step.c: verifies memory before and after a step.
 *
 * Before: every operand must be inside one live allocation of the device. Outputs must not overlap
 * inputs except where the contract allows it, and the work space must not overlap any operand.
 * Outputs and work space are then filled with poison. After: no guard may have been written, and
 * every element of the outputs must have been written. An element that still looks like poison may
 * be a result, so the step runs once more over zeros: an element that was never written is then 0.
 */
#include "check.h"
#include "context.h"
#include "step.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One call of `run`. */
typedef struct call {
    fx_device *device;
    const fx_step *step;
    const void *const *in;
    void *out;
    fx_run *run;
} call;

FXI_PRINTF(2, 3) static fx_status wrong(const call *c, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fx_fail(FX_STATUS_INTERNAL, fx_op_name(c->step->op), "%s", text);
}

/* ---- operands -------------------------------------------------------------------------------- */

static size_t size_of(const fx_tensor *t)
{
    return fx_dtype_size((fx_dtype)t->dtype);
}

static fxi_span span_of(const fx_tensor *t, const void *at)
{
    const int64_t size = (int64_t)size_of(t);
    int64_t low = 0, high = size;
    if (fx_tensor_length(t) == 0)
        return (fxi_span){0, 0};
    for (int i = 0; i < t->ndim; i++) {
        const int64_t reach = (t->shape[i] - 1) * t->stride[i] * size;
        *(reach < 0 ? &low : &high) += reach;
    }
    return (fxi_span){(uintptr_t)at + (uintptr_t)low, (uintptr_t)at + (uintptr_t)high};
}

static fxi_span input(const call *c, int32_t k)
{
    return span_of(&c->step->in[k], c->in[k]);
}

static fxi_span output(const call *c, int32_t k)
{
    const fx_tensor t = fxi_step_output_tensor(c->step, k);
    return span_of(&t, c->step->cls == FX_CLASS_FOREACH ? c->run->outputs[k]
                       : k == 0                         ? c->out
                                                        : c->run->more[k - 1]);
}

/* The work space without its guard; and the guard, which is after it. */
static fxi_span work_space(const call *c)
{
    const uintptr_t at = (uintptr_t)c->run->work;
    const int64_t bytes = c->step->work_bytes;
    return bytes > 0 ? (fxi_span){at, at + (uintptr_t)bytes} : (fxi_span){0, 0};
}
static fxi_span work_guard(const call *c)
{
    const uintptr_t at = work_space(c).high;
    return (fxi_span){at, at ? at + FXI_CHECK_WORK_GUARD : 0};
}

static bool is_empty(fxi_span s)
{
    return s.low == s.high;
}

static fx_status find_strays(const call *c)
{
    const fx_step *s = c->step;
    const int32_t nout = fx_step_outputs(s);
    char why[FXI_CHECK_TEXT];
    for (int32_t k = 0; k < s->nin + nout; k++) {
        const fxi_span at = k < s->nin ? input(c, k) : output(c, k - s->nin);
        if (!is_empty(at) && fxi_check_is_outside(c->device, at, why))
            return wrong(c, "%s %d on %s %s", k < s->nin ? "operand" : "output",
                         (int)(k < s->nin ? k : k - s->nin), c->device->name, why);
    }
    const fxi_span work = {work_space(c).low, work_guard(c).high};
    if (!is_empty(work) && fxi_check_is_outside(c->device, work, why))
        return wrong(c, "work space on %s %s", c->device->name, why);
    return FX_OK;
}

/* May output k have the memory of an input? Elementwise and foreach steps read an element before
 * they write it. In a row step, only the output of the last instruction on elements may: other
 * outputs are written while the step still reads. */
static bool may_write_over(const fx_step *s, int32_t k)
{
    if (s->cls == FX_CLASS_FOREACH)
        return !fx_step_foreach(s)->each;
    if (s->cls != FX_CLASS_ROW)
        return s->cls == FX_CLASS_ELEMENTWISE;
    const fx_row_step *row = fx_step_row(s);
    const int reg = k == 0 ? row->out_reg : row->more.reg[k - 1];
    int latest = -1;
    for (int j = 0; j < row->program.n; j++)
        if (fxi_row_reads(s, j))
            latest = j;
    return latest >= 0 && reg == s->nin + latest && row->program.instr[latest].op != FX_OP_REDUCE;
}

/* May output k have the memory of input i? Only if both have exactly the same bytes. */
static bool may_share(const call *c, int32_t i, int32_t k)
{
    const fx_step *s = c->step;
    const fx_tensor *t = &s->in[i], out = fxi_step_output_tensor(s, k);
    const fxi_span a = input(c, i), b = output(c, k);
    const int32_t n = fx_step_segments(s);
    /* Segment g of a foreach step may write over its own inputs only: others are read at the same
     * time. */
    const bool own = i / (s->nin / n) == k / (fx_step_outputs(s) / n);
    return may_write_over(s, k) && own && a.low == b.low && a.high == b.high &&
           size_of(t) == size_of(&out) && fxi_is_dense(t->ndim, t->shape, t->stride);
}

/* Finds outputs that overlap operands. Sets *shared if an output has the memory of an operand and
 * is allowed to: no output is poisoned then, because the step reads that memory. */
static fx_status find_overlaps(const call *c, bool *shared)
{
    const fx_step *s = c->step;
    const char *device = c->device->name;
    for (int32_t k = 0; k < fx_step_outputs(s); k++) {
        const fxi_span out = output(c, k);
        for (int32_t i = 0; i < s->nin; i++) {
            if (!fxi_spans_meet(input(c, i), out))
                continue;
            if (!may_share(c, i, k))
                return wrong(c, "output %d on %s overlaps operand %d", (int)k, device, (int)i);
            *shared = true;
        }
        for (int32_t i = 0; i < k; i++)
            if (fxi_spans_meet(output(c, i), out))
                return wrong(c, "output %d on %s overlaps output %d", (int)k, device, (int)i);
    }
    return FX_OK;
}

static fx_status find_shared_work(const call *c)
{
    const fx_step *s = c->step;
    const fxi_span work = {work_space(c).low, work_guard(c).high};
    for (int32_t k = 0; k < s->nin + fx_step_outputs(s); k++)
        if (fxi_spans_meet(k < s->nin ? input(c, k) : output(c, k - s->nin), work))
            return wrong(c, "work space on %s overlaps %s %d", c->device->name,
                         k < s->nin ? "operand" : "output", (int)(k < s->nin ? k : k - s->nin));
    return FX_OK;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static fx_status run_inner(const call *c)
{
    if (!is_empty(work_space(c))) {
        /* Poison: a kernel that reads what an earlier step left in the work space then computes
         * NaN. */
        fxi_check_fill_range(c->device, work_space(c), FXI_CHECK_POISON);
        fxi_check_fill_range(c->device, work_guard(c), FXI_CHECK_GUARD);
    }
    return fxi_checker_of(c->device)->inner->run(fxi_check_inner(c->device), c->step, c->in, c->out,
                                                 c->run);
}

static fx_status find_damage(const call *c)
{
    char why[FXI_CHECK_TEXT] = "";
    /* Reads all allocations of the device, which is slow, so only FX_CHECK=all does it. */
    if (fxi_checker_of(c->device)->thorough)
        fxi_check_all(c->device, why);
    for (int32_t k = 0; k < fx_step_outputs(c->step) && !*why; k++)
        if (!is_empty(output(c, k)))
            fxi_check_is_damaged(c->device, output(c, k), why);
    if (*why)
        return wrong(c, "on %s %s", c->device->name, why);
    const int64_t at =
        is_empty(work_guard(c)) ? -1 : fxi_check_changed(c->device, work_guard(c), FXI_CHECK_GUARD);
    return at < 0 ? FX_OK
                  : wrong(c, "on %s, byte %lld after a work space of %lld bytes was written",
                          c->device->name, (long long)at, (long long)c->step->work_bytes);
}

static fx_status find_unwritten(const call *c)
{
    for (int32_t k = 0; k < fx_step_outputs(c->step); k++) {
        const fx_tensor t = fxi_step_output_tensor(c->step, k);
        const fxi_span at = output(c, k);
        const int64_t suspects = is_empty(at) ? 0 : fxi_check_untouched(c->device, at, size_of(&t));
        if (suspects == 0)
            continue;
        fxi_check_fill_range(c->device, at, FXI_CHECK_ZERO);
        const fx_status status = run_inner(c);
        if (status != FX_OK)
            return status;
        const int64_t missing = suspects - fxi_check_untouched(c->device, at, size_of(&t));
        if (missing > 0)
            return wrong(c, "%lld of the %lld elements of output %d on %s were not written",
                         (long long)missing, (long long)fx_tensor_length(&t), (int)k,
                         c->device->name);
    }
    return FX_OK;
}

static void count_step(const call *c)
{
    fxi_checker *checker = fxi_checker_of(c->device);
    fxi_mutex_lock(&checker->lock);
    checker->steps++;
    checker->latest = fxi_ops[c->step->op].name;
    fxi_mutex_unlock(&checker->lock);
}

fx_status fxi_check_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        fx_run *run)
{
    const call c = {device, step, in, out, run};
    bool shared = false;
    count_step(&c);
    fx_status status = find_strays(&c);
    if (status == FX_OK)
        status = find_overlaps(&c, &shared);
    if (status == FX_OK)
        status = find_shared_work(&c);
    for (int32_t k = 0; k < fx_step_outputs(step) && status == FX_OK && !shared; k++)
        if (!is_empty(output(&c, k)))
            fxi_check_fill_range(device, output(&c, k), FXI_CHECK_POISON);
    if (status == FX_OK)
        status = run_inner(&c);
    if (status == FX_OK)
        status = find_damage(&c);
    /* Custom and collective steps do not run twice: a user's function may do more than compute, and
     * other processes take part in a collective step. */
    return status == FX_OK && !shared && step->cls != FX_CLASS_CUSTOM &&
                   step->cls != FX_CLASS_COLLECTIVE
               ? find_unwritten(&c)
               : status;
}
