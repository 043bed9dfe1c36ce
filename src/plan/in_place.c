/* in_place.c: may a step write an output over a value that it reads?
 *
 * place.c asks this for arena memory, and donate.c for the buffers of replaced values. An
 * elementwise step may: it reads element i of every operand before it writes element i of an
 * output. Condition: each operand through which the step reads the value begins where the output
 * begins, and has the same sizes, strides and element size.
 *
 * Row steps read their operands once for each pass, and in the order of the program within a pass.
 * So a row step may write over an operand only with the output that its program computes last:
 * nothing reads an element after that. A reduction that follows in the program reads elements too,
 * unless it is a sum across rows whose operand is a result of the program (fxi_row_reads).
 *
 * Equal byte counts are not enough. Half of a Float32 array, widened to Float64, has as many bytes
 * as the whole array; writing element 1 of the output would overwrite element 2 of the array before
 * it is read.
 */
#include "plan.h"

/* Is element i of operand k at the address of element i of the output, for all i, if value and
 * output begin at the same byte? The output is dense, so the operand must be too. */
static bool coincides(const fxi_plan *p, const fx_step *s, int k, int32_t out)
{
    const fx_tensor *t = &s->in[k];
    const int64_t size = (int64_t)fx_dtype_size((fx_dtype)t->dtype);
    if (s->in_offset[k] != 0 || t->ndim != s->out.ndim ||
        !fxi_is_dense(t->ndim, t->shape, t->stride))
        return false;
    for (int a = 0; a < t->ndim; a++)
        if (t->shape[a] != s->out.shape[a])
            return false;
    return fx_tensor_length(t) * size == p->values[out].bytes &&
           p->values[s->in_value[k]].bytes == p->values[out].bytes;
}

/* Is value `out` what the program of a row step computes last for each element? A reduction that
 * comes last is complete only at the end of a row, or of all rows. */
static bool comes_last(const fx_step *s, int32_t out)
{
    const fx_row_step *row = fx_step_row(s);
    int last = row->program.n - 1;
    while (last >= 0 && !fxi_row_reads(s, last))
        last--;
    for (int32_t o = 0; o < fx_step_outputs(s) && last >= 0; o++)
        if (fx_step_output(s, o) == out)
            return (o == 0 ? row->out_reg : row->more.reg[o - 1]) == s->nin + last &&
                   row->program.instr[last].op != FX_OP_REDUCE;
    return false;
}

static bool writes_in_place(const fxi_plan *p, const fx_step *s, int k, int32_t out)
{
    const bool follows =
        s->cls == FX_CLASS_ELEMENTWISE || (s->cls == FX_CLASS_ROW && comes_last(s, out));
    return out >= 0 && follows && coincides(p, s, k, out);
}

fxi_reading fxi_reads(const fxi_plan *p, const fx_step *s, int32_t value, int32_t out)
{
    /* A value can be several operands of a step. If one of these is read in another order, the
     * answer is OTHERWISE. */
    fxi_reading how = FXI_READS_NOT;
    for (int k = 0; k < s->nin && how != FXI_READS_OTHERWISE; k++)
        if (s->in_value[k] == value)
            how = writes_in_place(p, s, k, out) ? FXI_READS_IN_PLACE : FXI_READS_OTHERWISE;
    return how;
}
