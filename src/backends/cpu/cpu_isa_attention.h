/* cpu_isa_attention.h: the elementwise part of attention (cpu_attention.c); part of cpu_isa.h.
 *
 * A panel has two vectors of lanes and one row for each term. Values of different lanes are never
 * combined: a maximum or a sum over the rows needs no shuffle, and a lane that does not exist may
 * hold any values.
 */
static inline vf vf_read(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_write(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

enum { FXI_LANES = FXI_VECTOR_BYTES / sizeof(float) };

/* vf_max returns its second operand if one is NaN, so the maximum ignores NaN. The exponential
 * of a NaN is NaN, and so is the sum. While all scores are −∞, 0 is subtracted: −∞ − (−∞) would be
 * NaN, and a later block may have other scores. */
static void attention_softmax(const fxi_attention_panel *p)
{
    FXI_UNROLL
    for (int i = 0; i < 2 * FXI_LANES; i += FXI_LANES) {
        float *const s = p->s + i;
        const vf before = vf_read(p->most + i);
        /* Two maxima, of the even and of the odd rows: each vf_max waits for the previous one. */
        vf most[2] = {before, before}, sum = {0};
        int64_t r = 0;
        for (; r + 2 <= p->rows; r += 2) {
            most[0] = vf_max(vf_read(s + r * 2 * FXI_LANES), most[0]);
            most[1] = vf_max(vf_read(s + (r + 1) * 2 * FXI_LANES), most[1]);
        }
        if (r < p->rows)
            most[0] = vf_max(vf_read(s + r * 2 * FXI_LANES), most[0]);
        const vf top = vf_max(most[0], most[1]);
        const vf less = vf_pick(vf_same(top, vf_splat(-INFINITY)), vf_splat(0.0f), top);
        const vf factor = vf_exp_down(before - less);
        for (r = 0; r < p->rows; r++) {
            float *const at = s + r * 2 * FXI_LANES;
            const vf e = vf_exp_down(vf_read(at) - less);
            vf_write(at, e);
            sum += e;
        }
        vf_write(p->most + i, top);
        vf_write(p->factor + i, factor);
        vf_write(p->sum + i, vf_fma(vf_read(p->sum + i), factor, sum));
    }
}

/* The numbers of the lanes from i on in row r. */
FXI_INLINE vf attention_number(const float *x, int64_t stride, int64_t r, int i)
{
    return stride ? vf_splat(x[r * stride]) : vf_read(x + i);
}

static void attention_gradient(const fxi_attention_panel *p)
{
    const int64_t stride = p->stride;
    for (int64_t r = 0; r < p->rows; r++) {
        FXI_UNROLL
        for (int i = 0; i < 2 * FXI_LANES; i += FXI_LANES) {
            float *const s = p->s + r * 2 * FXI_LANES + i, *const d = p->d + (s - p->s);
            const vf alpha = vf_exp_down(vf_read(s) - attention_number(p->log_sums, stride, r, i));
            vf_write(s, alpha);
            vf_write(d, alpha * (vf_read(d) - attention_number(p->delta, stride, r, i)));
        }
    }
}

static const fxi_attention_core tile_attention = {attention_softmax, attention_gradient};
