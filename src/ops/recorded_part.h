/* recorded_part.h: layers, losses and rules in a recorded training step (value/tape.h). Internal.
 *
 * The calls of a layer, for example, follow from its inputs and from a few numbers. If a training
 * step repeats a recorded one and all of these are equal, the calls are skipped as a whole and the
 * recorded results are returned. See docs/design/0046-a-recorded-step.md.
 *
 *     fxi_part p = {.what = "dense", .function = act, .in = {x, weight, bias}};
 *     if (!fxi_part_repeat(&p)) {
 *         p.out[0] = ...;
 *         fxi_part_note(&p);
 *     }
 *     return p.out[0];
 */
#ifndef CFLUX_RECORDED_PART_H
#define CFLUX_RECORDED_PART_H

#include <cflux/array.h>

enum { FXI_PART_INPUTS = 5, FXI_PART_NUMBERS = 12, FXI_PART_RESULTS = 3 };

typedef struct fxi_part {
    const char *what;     /* static text; names the function that makes the calls */
    const void *function; /* an activation; NULL: none. Only functions of the library are skipped */
    double numbers[FXI_PART_NUMBERS]; /* everything else that the calls depend on */
    fx_array *in[FXI_PART_INPUTS];    /* all arrays that the calls read; NULL: none */
    fx_array *out[FXI_PART_RESULTS];  /* arrays that the calls made; NULL: none */
    /* Numbers that may differ between training steps. The first calls make them literals
     * (fx_scalar), in this order. */
    const double *literals;
    int nliterals;
    int32_t first, evaluations; /* internal: where the part began */
} fxi_part;

/* Returns true if the calls are skipped. The scope of the caller then owns the results in `out`.
 * Otherwise the caller makes the calls. It frees the handles of all intermediate results before it
 * returns, because skipped calls make none. */
bool fxi_part_repeat(fxi_part *p);
/* A handle of the k-th of `literals` that a skipped part would have made, for calls after it; call
 * this at most once for each. NULL: the training step does not repeat any more, and the caller
 * makes the literal. `first`: of the part. */
fx_array *fxi_part_literal(int32_t first, int k);
/* Call this after the calls. If the training step is noted, the part can be skipped in the next
 * one. */
void fxi_part_note(const fxi_part *p);

#endif
