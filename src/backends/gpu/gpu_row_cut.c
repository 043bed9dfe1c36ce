/* gpu_row_cut.c: row steps whose rows are cut into pieces.
 *
 * Rows with axes on both sides of a kept axis (batch norm), and those of a loss over all elements,
 * are few and long: one group for each would leave the device idle. Such a row is cut into pieces,
 * and every pass is a launch. A group leaves the accumulators of its piece in work space; the
 * groups of later passes join those of all pieces before they compute the values of the row. The
 * division, and so the bits of the result, depend only on shapes and on the device.
 */
#include "gpu_row.h"

/* The fewest elements of a lane, and the most pieces of a row, because every group of a later pass
 * joins all pieces. Contiguous rows of at most WHOLE elements are not cut: their operands stay in
 * the device's caches. */
enum { LEAST = 4, PIECES = 64, WHOLE = 16384, PACK = 8 };

/* The number of the first of two parameters: the elements of a piece, and the number of pieces. */
static int piece_param(const fxi_gpu_rows *r)
{
    return FXI_GPU_ROW_WALKS + fxi_gpu_walk_params(&r->outer) + fxi_gpu_walk_params(&r->inner);
}

/* Is k a reduction that the launch of a pass leaves or finds in work space? */
static bool in_work(const fxi_gpu_rows *r, int k, int pass)
{
    const fx_instr *ins = &fx_step_row(r->step)->program.instr[k];
    return r->pieces > 0 && fxi_gpu_reduces(ins) && ins->pass <= pass;
}

void fxi_gpu_row_cut(fxi_gpu_builder *b, fxi_gpu_rows *r)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    /* About four groups for each unit of the device. */
    const int64_t busy = 4 * (int64_t)b->limits->units,
                  most = r->elements_of_row / (LEAST * FXI_GPU_GROUP);
    int64_t n = (busy + r->count - 1) / r->count;
    n = n < most ? n : most;
    n = n < 1 ? 1 : n > PIECES ? PIECES : n;
    if (fx_step_row(r->step)->outer_axes == 0 && (n == 1 || r->elements_of_row <= WHOLE))
        return;
    /* Multiples of a pack. */
    r->piece = ((r->elements_of_row + n - 1) / n + PACK - 1) / PACK * PACK;
    /* Rounding up may leave fewer pieces; none of them is empty. */
    r->pieces = (r->elements_of_row + r->piece - 1) / r->piece;
    const int last = r->npasses - 1;
    for (int k = 0; k < p->n; k++) {
        if (!fxi_gpu_reduces(&p->instr[k]))
            continue;
        /* One additional launch joins the reductions of the last pass. */
        r->npasses = p->instr[k].pass == last ? last + 2 : r->npasses;
        /* No accumulator has more than four fields of at most 8 bytes (gpu_fold.c). */
        r->work[r->step->nin + k] = fxi_gpu_work(b, r->count * r->pieces * 4 * 8);
    }
}

int fxi_gpu_row_cut_buffers(const fxi_gpu_rows *r, int pass)
{
    int n = 0;
    for (int k = 0; k < fx_step_row(r->step)->program.n; k++)
        n += in_work(r, k, pass);
    return n;
}

int fxi_gpu_row_cut_params(const fxi_gpu_rows *r)
{
    return r->pieces > 0 ? 2 : 0;
}

void fxi_gpu_row_cut_uses(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass)
{
    const fx_step *s = r->step;
    int at = s->nin + fxi_gpu_row_outputs(s);
    for (int k = 0; k < fx_step_row(s)->program.n; k++)
        if (in_work(r, k, pass))
            fxi_gpu_say(b, "FX_USE(%d, fx_acc%d, w%d)\n", at++,
                        fxi_gpu_row_fold(r, &fx_step_row(s)->program.instr[k]), s->nin + k);
}

void fxi_gpu_row_cut_range(fxi_gpu_builder *b, const fxi_gpu_rows *r)
{
    if (r->pieces == 0) {
        fxi_gpu_say(b, "const fx_int first = 0, count = line < P(0) ? P(1) : 0;\n");
        return;
    }
    /* The pieces of a row are the groups along Y. */
    fxi_gpu_set_number(b, "piece", piece_param(r));
    fxi_gpu_say_part(b, fxi_gpu_text_rows_piece);
}

/* Registers are lost between launches. So every lane joins the accumulators of all earlier passes
 * again, which are few: one for each piece. */
void fxi_gpu_row_cut_found(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    for (int earlier = 0; earlier < pass; earlier++) {
        fxi_gpu_say_row_values(b, r, earlier);
        for (int k = 0; k < p->n; k++) {
            if (!fxi_gpu_reduces(&p->instr[k]) || p->instr[k].pass != earlier)
                continue;
            fxi_gpu_set_number(b, "n", fxi_gpu_row_fold(r, &p->instr[k]));
            fxi_gpu_set_number(b, "reg", r->step->nin + k);
            fxi_gpu_set_number(b, "pieces", piece_param(r) + 1);
            fxi_gpu_say_part(b, fxi_gpu_text_rows_found);
            fxi_gpu_say_row_result(b, r, k);
        }
    }
}

void fxi_gpu_row_cut_leave(fxi_gpu_builder *b, const fxi_gpu_rows *r, int k)
{
    const int reg = r->step->nin + k;
    fxi_gpu_say(b, "if (lane == 0 && count > 0) w%d[row * P(%d) + FX_GROUP_Y] = a%d;\n", reg,
                piece_param(r) + 1, reg);
}

void fxi_gpu_row_cut_fill(const fxi_gpu_rows *r, fxi_gpu_call *c, int pass)
{
    const fx_step *s = r->step;
    int at = s->nin + fxi_gpu_row_outputs(s);
    for (int k = 0; k < fx_step_row(s)->program.n; k++)
        if (in_work(r, k, pass))
            fxi_gpu_buffer(c, at++, FXI_GPU_WORK, r->work[s->nin + k]);
    if (r->pieces == 0)
        return;
    fxi_gpu_param(c, piece_param(r), r->piece);
    fxi_gpu_param(c, piece_param(r) + 1, r->pieces);
    c->groups[1] = r->pieces;
}
