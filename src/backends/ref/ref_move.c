/* ref_move.c: movement, copies and generators, with index arithmetic of their own.
 *
 * For other backends the planner turns RESHAPE, PERMUTE, EXPAND, SLICE and STOP into strides, and
 * adds a step only to copy a view. Here each of them is a step that copies element by element, from
 * the attributes of its node. This checks the planner.
 */
#include "philox.h"
#include "ref_kernels.h"

/* Fills `at` with the multi-index in the input for output multi-index `index`. */
typedef void (*source_fn)(const fx_step *s, const int64_t *index, int64_t *at);

static fx_status copy_from(const fx_step *s, const void *const *in, void *out, source_fn source)
{
    const fx_tensor *x = &s->in[0];
    int64_t index[FX_MAX_DIMS], at[FX_MAX_DIMS] = {0};
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        source(s, index, at);
        fxi_ref_put(s->out.dtype, out, i, fxi_ref_get(x->dtype, in[0], fxi_ref_offset(x, at)));
    }
    return FX_OK;
}

/* The element at the same column-major position. STOP is a reshape to the same sizes. */
static void reshape_source(const fx_step *s, const int64_t *index, int64_t *at)
{
    int64_t linear = 0;
    for (int k = s->out.ndim - 1; k >= 0; k--)
        linear = linear * s->out.shape[k] + index[k];
    fxi_ref_unravel(linear, s->in[0].ndim, s->in[0].shape, at);
}

fx_status fxi_ref_reshape(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    return copy_from(s, in, out, reshape_source);
}

static void permute_source(const fx_step *s, const int64_t *index, int64_t *at)
{
    for (int k = 0; k < s->out.ndim; k++)
        at[fx_step_movement(s)->permutation[k]] = index[k];
}

fx_status fxi_ref_permute(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    return copy_from(s, in, out, permute_source);
}

static void expand_source(const fx_step *s, const int64_t *index, int64_t *at)
{
    for (int k = 0; k < s->out.ndim; k++)
        at[k] = s->in[0].shape[k] == 1 ? 0 : index[k];
}

fx_status fxi_ref_expand(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    return copy_from(s, in, out, expand_source);
}

static void slice_source(const fx_step *s, const int64_t *index, int64_t *at)
{
    for (int k = 0; k < s->out.ndim; k++)
        at[k] = index[k];
    const fx_movement_step *m = fx_step_movement(s);
    at[m->slice.axis] = m->slice.start + index[m->slice.axis] * m->slice.step;
}

fx_status fxi_ref_slice(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    return copy_from(s, in, out, slice_source);
}

fx_status fxi_ref_pad(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    const fx_tensor *x = &s->in[0];
    const int axis = fx_step_copy(s)->axis;
    const fxi_ref_value fill = fxi_ref_get(s->in[1].dtype, in[1], 0);
    int64_t index[FX_MAX_DIMS];
    (void)run;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        index[axis] -= fx_step_copy(s)->before;
        const bool inside = index[axis] >= 0 && index[axis] < x->shape[axis];
        fxi_ref_put(s->out.dtype, out, i,
                    inside ? fxi_ref_get(x->dtype, in[0], fxi_ref_offset(x, index)) : fill);
    }
    return FX_OK;
}

fx_status fxi_ref_concat(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    const int axis = fx_step_copy(s)->axis;
    int64_t index[FX_MAX_DIMS];
    (void)run;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        int piece = 0;
        while (index[axis] >= s->in[piece].shape[axis])
            index[axis] -= s->in[piece++].shape[axis];
        const fx_tensor *x = &s->in[piece];
        fxi_ref_put(s->out.dtype, out, i,
                    fxi_ref_get(x->dtype, in[piece], fxi_ref_offset(x, index)));
    }
    return FX_OK;
}

fx_status fxi_ref_iota(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    const int axis = fx_step_generator(s)->axis;
    int64_t index[FX_MAX_DIMS];
    (void)in, (void)run;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        fxi_ref_put(s->out.dtype, out, i, fxi_ref_number(s->out.dtype, index[axis]));
    }
    return FX_OK;
}

/* Float32 element i is word i mod 4 of block i / 4. A Float64 element takes two words, half a
 * block; see philox.h. */
fx_status fxi_ref_random(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    const uint64_t *stream = run->streams[fx_step_generator(s)->stream];
    const int64_t n = fxi_ref_length(&s->out);
    const int64_t per_block = s->out.dtype == FX_DTYPE_F64 ? 2 : 4;
    (void)in;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word[4];
        fxi_philox(stream[0], stream[1], (uint64_t)(i / per_block), word);
        const int64_t k = i % per_block;
        const double u = per_block == 2 ? fxi_uniform64(word[2 * k], word[2 * k + 1])
                                        : (double)fxi_uniform32(word[k]);
        fxi_ref_put(s->out.dtype, out, i, (fxi_ref_value){.real = u});
    }
    return FX_OK;
}
