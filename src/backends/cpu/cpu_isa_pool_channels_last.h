/* cpu_isa_pool_channels_last.h: one pooling window over all channels of a channels-last array; part
 * of cpu_isa.h.
 *
 * A tap is a run of channels, so vectors run along the channels. Taps are taken in the order of the
 * window, so that the first NaN, else the first largest element, is the maximum, as in
 * cpu_isa_pool.h. oneDNN's pooling is not used because its maximum loses NaN.
 */
enum { POOL_LANES = sizeof(vf) / sizeof(float) };

/* Loads up to n lanes; those beyond are 0. A whole vector could read beyond the end of the
 * array. */
static inline vf pool_load(const float *p, int64_t n)
{
    vf v = {0};
    if (n >= POOL_LANES)
        memcpy(&v, p, sizeof v);
    else
        memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

static inline void pool_store(float *p, vf v, int64_t n)
{
    if (n >= POOL_LANES)
        memcpy(p, &v, sizeof v);
    else
        memcpy(p, &v, (size_t)n * sizeof *p);
}

/* As FXI_BEATS of cpu_isa_pool.h: larger, or the first NaN. */
static inline vf_mask pool_beats(vf v, vf top)
{
    return (vf_mask)(vf_less(top, v) | (~vf_same(v, v) & vf_same(top, top)));
}

/* The numbers of the taps that hold the maxima of up to POOL_LANES channels from c on, as floats,
 * which masks of Float32 can choose. */
static inline vf pool_find(const fxi_pool_window *w, int64_t c)
{
    const int64_t n = w->channels - c;
    vf best = {0}, top = pool_load(w->x + w->tap[0] + c, n);
    for (int t = 1; t < w->taps; t++) {
        const vf v = pool_load(w->x + w->tap[t] + c, n);
        const vf_mask beats = pool_beats(v, top);
        top = vf_pick(beats, v, top);
        best = vf_pick(beats, vf_splat((float)t), best);
    }
    return best;
}

static void pool_channels_last_max(const fxi_pool_window *w)
{
    for (int64_t c = 0; c < w->channels; c += POOL_LANES) {
        const int64_t n = w->channels - c;
        vf top = vf_splat(-__builtin_inff());
        for (int t = 0; t < w->taps; t++) {
            const vf v = pool_load(w->x + w->tap[t] + c, n);
            /* The first tap is the maximum so far, also if it is NaN. */
            top = t ? vf_pick(pool_beats(v, top), v, top) : v;
        }
        pool_store(w->y + c, top, n);
    }
}

static void pool_channels_last_max_grad(const fxi_pool_window *w)
{
    for (int64_t c = 0; c < w->channels && w->taps > 0; c += POOL_LANES) {
        const int64_t n = w->channels - c;
        const vf best = pool_find(w, c), g = pool_load(w->y + c, n);
        for (int t = 0; t < w->taps; t++) {
            float *to = w->v + w->tap[t] + c;
            /* Every tap is written, also those that get 0, because the output is not cleared first
             * if windows tile the array. */
            const vf share = vf_pick(vf_same(best, vf_splat((float)t)), g, (vf){0});
            pool_store(to, w->adds ? pool_load(to, n) + share : share, n);
        }
    }
}

static void pool_channels_last_pick(const fxi_pool_window *w)
{
    for (int64_t c = 0; c < w->channels; c += POOL_LANES) {
        const int64_t n = w->channels - c;
        vf y = {0};
        /* A window wholly in the padding has no tap and gives 0. */
        if (w->taps > 0) {
            const vf best = pool_find(w, c);
            for (int t = 0; t < w->taps; t++)
                y = vf_pick(vf_same(best, vf_splat((float)t)), pool_load(w->v + w->tap[t] + c, n),
                            y);
        }
        pool_store(w->y + c, y, n);
    }
}

/* Sums run in double in the order of the taps: the same bits as the pooling of planes gives. */
static void pool_channels_last_mean(const fxi_pool_window *w)
{
    /* The sums of a block of channels stay in registers or the first-level cache while the taps
     * pass. */
    enum { BLOCK = 64 };
    for (int64_t c = 0; c < w->channels; c += BLOCK) {
        const int64_t n = w->channels - c < BLOCK ? w->channels - c : BLOCK;
        double sum[BLOCK] = {0};
        for (int t = 0; t < w->taps; t++)
            for (int64_t i = 0; i < n; i++)
                sum[i] += (double)w->x[w->tap[t] + c + i];
        for (int64_t i = 0; i < n; i++)
            w->y[c + i] = (float)(sum[i] / w->count);
    }
}

/* The share is rounded before it is added, as in cpu_pool.c, so that both orders of memory give the
 * same bits. */
static void pool_channels_last_mean_grad(const fxi_pool_window *w)
{
    for (int64_t i = 0; i < w->channels; i++) {
        const float share = (float)((double)w->y[i] / w->count);
        for (int t = 0; t < w->taps; t++) {
            float *to = w->v + w->tap[t] + i;
            *to = w->adds ? *to + share : share;
        }
    }
}

static void (*const tile_pool_channels_last[])(const fxi_pool_window *w) = {
    [FX_POOL_MAX] = pool_channels_last_max,
    [FX_POOL_MEAN] = pool_channels_last_mean,
    [FX_POOL_MAX_GRAD] = pool_channels_last_max_grad,
    [FX_POOL_MEAN_GRAD] = pool_channels_last_mean_grad,
    [FX_POOL_MAX_PICK] = pool_channels_last_pick};
