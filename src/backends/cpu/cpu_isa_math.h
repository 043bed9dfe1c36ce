/* cpu_isa_math.h: exp, log, tanh and sigmoid of Float32 vectors, part of cpu_isa.h.
 *
 * Branch-free: both sides are computed and picked by masks. Polynomials are those of Cephes
 * (Moshier, single precision: expf, logf, tanhf); the largest errors over all Float32 values are
 * below 4 ulp (tests/unit/test_cpu_elementwise.c measures them), with NaN, Inf, denormals and −0 as
 * C has them. Rounding to an integer adds and subtracts 1.5·2²³. Scaling by 2ⁿ is done in two steps
 * so that overflow and gradual underflow happen by themselves.
 */
typedef float vf __attribute__((vector_size(FXI_VECTOR_BYTES)));
typedef double vd __attribute__((vector_size(FXI_VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(FXI_VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(FXI_VECTOR_BYTES)));
#define VF_LANES (FXI_VECTOR_BYTES / 4)

static inline vf vf_splat(float x)
{
    return x - (vf){0};
}
static inline vf vf_pick(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}
static inline vf vf_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return FXI_FMA_F32(a, b, c);
}
static inline vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* c[0]·xⁿ⁻¹ + … + c[n−1] */
static inline vf vf_poly(vf x, const float *c, int n)
{
    vf p = vf_splat(c[0]);
    for (int i = 1; i < n; i++)
        p = vf_fma(p, x, vf_splat(c[i]));
    return p;
}

#define LN2_HIGH 0.693359375f /* 10 bits: n·LN2_HIGH is exact */
#define LN2_LOW  -2.12194440e-4f

static inline vf vf_exp(vf x)
{
    static const float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                              4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    const vf magic = vf_splat(0x1.8p23f), hi = vf_splat(89.0f), lo = vf_splat(-104.0f);
    x = vf_pick(x > hi, hi, x);
    x = vf_pick(x < lo, lo, x); /* NaN passes both */
    const vf t = vf_fma(x, vf_splat(1.44269504088896341f), magic), n = t - magic;
    const vu shifted = (vu)t - (vu)magic;
    vf r = vf_fma(n, vf_splat(-LN2_HIGH), x);
    r = vf_fma(n, vf_splat(-LN2_LOW), r);
    const vf y = vf_fma(vf_poly(r, c, 6), r * r, r) + 1.0f;
    const vu half = (vu)((vi)shifted >> 1), rest = shifted - half;
    return y * (vf)((half + 127u) << 23) * (vf)((rest + 127u) << 23);
}

static inline vf vf_log(vf x)
{
    static const float c[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                              -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                              2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
    const vi denormal = x < vf_splat(FLT_MIN);
    const vf s = vf_pick(denormal, x * 0x1p25f, x);
    const vf m = (vf)(((vi)s & 0x007fffff) | 0x3f000000); /* [½, 1) */
    const vi low = m < vf_splat(0.707106781186547524f);
    const vi exponent = (((vi)s >> 23) & 0xff) - 126 - (denormal & 25) + low; /* low is −1 or 0 */
    const vf e = __builtin_convertvector(exponent, vf), f = vf_pick(low, m + m, m) - 1.0f,
             z = f * f;
    vf y = f * z * vf_poly(f, c, 9);
    y = vf_fma(e, vf_splat(LN2_LOW), y);
    y = vf_fma(z, vf_splat(-0.5f), y);
    y = vf_fma(e, vf_splat(LN2_HIGH), f + y);
    y = vf_pick(x == vf_splat(0.0f), vf_splat(-INFINITY), y);
    y = vf_pick(x < vf_splat(0.0f), vf_splat(NAN), y);
    return vf_pick((x == vf_splat(INFINITY)) | (x != x), x, y);
}

static inline vf vf_tanh(vf x)
{
    static const float c[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                              1.33314422036e-1f, -3.33332819422e-1f};
    const vf a = vf_abs(x), z = a * a;
    const vf small = vf_fma(vf_poly(z, c, 5) * z, a, a);
    const vf large = 1.0f - 2.0f / (vf_exp(a + a) + 1.0f);
    const vf y = vf_pick(a < vf_splat(0.625f), small, large);
    return (vf)((vi)y | ((vi)x & INT32_MIN));
}

/* 1/(1 + e⁻ˣ): with e = exp(−|x|) either 1/(1 + e) or e/(1 + e), so that nothing cancels. */
static inline vf vf_sigmoid(vf x)
{
    const vf e = vf_exp(-vf_abs(x));
    return vf_pick(x < vf_splat(0.0f), e, vf_splat(1.0f)) / (1.0f + e);
}

/* The tail goes through a whole vector too: a number's result does not depend on its place. */
#define FXI_VECTOR_LOOP(NAME, FN)                                                                  \
    static void NAME(void *dv, const void *const *s, int n, int64_t attr)                          \
    {                                                                                              \
        (void)attr;                                                                                \
        const float *a = s[0];                                                                     \
        float *d = dv, t[VF_LANES] = {0};                                                          \
        int i = 0;                                                                                 \
        for (; i + VF_LANES <= n; i += VF_LANES)                                                   \
            vf_store(d + i, FN(vf_load(a + i)));                                                   \
        if (i == n)                                                                                \
            return;                                                                                \
        memcpy(t, a + i, (size_t)(n - i) * sizeof *t);                                             \
        vf_store(t, FN(vf_load(t)));                                                               \
        memcpy(d + i, t, (size_t)(n - i) * sizeof *t);                                             \
    }
FXI_VECTOR_LOOP(exp_f32, vf_exp)
FXI_VECTOR_LOOP(log_f32, vf_log)
FXI_VECTOR_LOOP(tanh_f32, vf_tanh)
FXI_VECTOR_LOOP(sigmoid_f32, vf_sigmoid)
