/* signal.c: windows, Fourier transforms, spectrograms: see signal.h.
 *
 * A transform is a product with a matrix: X[k] = Σⱼ x[j]·(cos(2πjk/n) − i·sin(2πjk/n)), real and
 * imaginary part in two products. Frames of sound are short (a few hundred numbers), all frames are
 * the columns of one matrix, and a fast product of matrices needs no operation of its own, no
 * gradient rule and no kernel on devices; a fast Fourier transform would need all three.
 *
 * The matrix of cosines is gathered from a table of n cosines, computed in double: element (k, j)
 * is entry jk mod n. So angles are exact for every n. The table and the indices are computed on the
 * host and copied to the device. Frames are a gather with a matrix of positions, and adding frames
 * up is the scatter with the same matrix.
 */
#include "nn_layer.h"

#include "error.h"
#include "memory.h"

#include <cflux/signal.h>
#include <math.h>

static const double TAU = 6.283185307179586476925286766559;

static fx_status check_floats(const char *op, const char *what, const fx_array *x)
{
    const fx_status status = fxi_expect_array(op, what, x);
    if (status != FX_OK)
        return status;
    const fx_dtype t = fx_eltype(x);
    return fxi_is_floating(t)
               ? FX_OK
               : fx_fail(FX_STATUS_DTYPE, op, "%s is %s, expected floats", what, fx_dtype_name(t));
}

/* c0 − c1·cos(2πi/m) + c2·cos(4πi/m) for i < n, in Float32; m = n if periodic, else n − 1. */
static fx_array *vector_of(const char *op, int64_t n, bool periodic, const double cosines[3])
{
    FXI_OPERATION(op);
    if (n < 0)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, op, "n is %lld, expected at least 0", (long long)n));
    float *v = fxi_calloc((size_t)n + 1, sizeof *v);
    if (!v)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, op, "out of memory"));
    const double m = (double)(periodic ? n : n - 1);
    for (int64_t i = 0; i < n; i++) {
        const double angle = n > 1 ? TAU * (double)i / m : 0;
        v[i] = n == 1 ? 1
                      : (float)(cosines[0] - cosines[1] * cos(angle) + cosines[2] * cos(2 * angle));
    }
    fx_array *w = fxi_from(FX_DTYPE_F32, v, 1, &n);
    fxi_free(v);
    return w;
}

fx_array *fx_hann_window(int64_t n, bool periodic)
{
    return vector_of("hann_window", n, periodic, (const double[]){0.5, 0.5, 0});
}

fx_array *fx_hamming_window(int64_t n, bool periodic, double alpha, double beta)
{
    return vector_of("hamming_window", n, periodic, (const double[]){alpha, beta, 0});
}

fx_array *fx_blackman_window(int64_t n, bool periodic)
{
    return vector_of("blackman_window", n, periodic, (const double[]){0.42, 0.5, 0.08});
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* The table cos(2πi/n) or sin(2πi/n), i < n, in the element type and on the device of `like`. */
static fx_array *table(int64_t n, bool sine, fx_array *like)
{
    double *v = fxi_calloc((size_t)n + 1, sizeof *v);
    if (!v)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "dft", "out of memory"));
    for (int64_t i = 0; i < n; i++) {
        const double angle = TAU * (double)i / (double)n;
        v[i] = sine ? sin(angle) : cos(angle);
    }
    fx_array *t = fx_cast(fxi_from(FX_DTYPE_F64, v, 1, &n), fx_eltype(like));
    fxi_free(v);
    fx_eval(t);
    return fx_array_to(fx_array_device(like), t);
}

/* rows×n matrix: entry (k, j) is the table's number jk mod n. */
static fx_array *waves(int64_t rows, int64_t n, bool sine, fx_array *like)
{
    fx_array *k = fx_range_dtype(FX_DTYPE_I64, 0, 1, rows);
    fx_array *j = fx_unsqueeze(fx_range_dtype(FX_DTYPE_I64, 0, 1, n), 0);
    fx_array *at = fx_mod(fx_mul(k, j), n);
    return fx_gather(table(n, sine, like), fx_array_to(fx_array_device(like), at), 0);
}

/* n×(all other elements): x with `axis` as axis 0, as a matrix. */
static fx_array *as_matrix(fx_array *x, int axis, int64_t perm[FX_MAX_DIMS])
{
    int n = 0;
    perm[n++] = axis;
    for (int i = 0; i < fx_ndims(x); i++)
        if (i != axis)
            perm[n++] = i;
    return fx_reshape(fxi_permute(x, n, perm), fx_size(x, axis),
                      fx_size(x, axis) ? fx_length(x) / fx_size(x, axis) : 0);
}

static fx_array *from_matrix(fx_array *m, fx_array *like, const int64_t perm[FX_MAX_DIMS])
{
    int64_t sizes[FX_MAX_DIMS], back[FX_MAX_DIMS];
    const int n = fx_ndims(like);
    for (int i = 0; i < n; i++) {
        sizes[i] = fx_size(like, (int)perm[i]);
        back[perm[i]] = i;
    }
    return fxi_permute(fxi_reshape(m, n, sizes), n, back);
}

static fx_status check_parts(const char *op, fx_array *re, fx_array *im)
{
    fx_status status = check_floats(op, "the real part", re);
    if (status == FX_OK && im)
        status = check_floats(op, "the imaginary part", im);
    bool same = status != FX_OK || !im || fx_ndims(re) == fx_ndims(im);
    for (int i = 0; status == FX_OK && im && same && i < fx_ndims(re); i++)
        same = fx_size(re, i) == fx_size(im, i);
    if (same)
        return status;
    char one[100], other[100];
    fx_summary(re, one, sizeof one);
    fx_summary(im, other, sizeof other);
    return fx_fail(FX_STATUS_SHAPE, op, "the real part is a %s, but the imaginary part a %s", one,
                   other);
}

void *fx_dft(fx_array *re, fx_array *im, int axis, bool inverse)
{
    FXI_OPERATION("dft");
    fx_status status = check_parts("dft", re, im);
    char got[100];
    if (status == FX_OK && (axis < 0 || axis >= fx_ndims(re))) {
        fx_summary(re, got, sizeof got);
        status =
            fx_fail(FX_STATUS_ARGUMENT, "dft", "there is no axis %d: the array is a %s", axis, got);
    }
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t n = fx_size(re, axis);
    if (n == 0)
        return fx_tuple(re, im ? im : re);
    FXI_SCOPE;
    int64_t perm[FX_MAX_DIMS];
    fx_array *c = waves(n, n, false, re), *s = waves(n, n, true, re);
    if (inverse) {
        c = fx_div(c, n);
        s = fx_div(fx_neg(s), n);
    }
    fx_array *a = as_matrix(re, axis, perm), *b = im ? as_matrix(im, axis, perm) : NULL;
    fx_array *x = fx_matmul(c, a), *y = fx_neg(fx_matmul(s, a));
    if (b) {
        x = fx_add(x, fx_matmul(s, b));
        y = fx_add(y, fx_matmul(c, b));
    }
    return fx_keep(fx_tuple(from_matrix(x, re, perm), from_matrix(y, re, perm)));
}

/* ---- frames ---------------------------------------------------------------------------------- */

typedef struct framing {
    const char *op;
    int64_t n_fft, hop;
    fx_array *window; /* n_fft numbers on the device of the signal */
    bool ones;        /* no window was given */
} framing;

static fx_status make_framing(framing *f, const char *op, int64_t n_fft, int64_t hop,
                              fx_array *window, fx_array *like)
{
    *f = (framing){.op = op, .n_fft = n_fft, .hop = hop ? hop : n_fft / 4};
    if (n_fft < 1 || f->hop < 1)
        return fx_fail(FX_STATUS_ARGUMENT, op, "n_fft %lld and hop_length %lld must be positive",
                       (long long)n_fft, (long long)f->hop);
    f->ones = !window;
    if (!window)
        window = fx_ones(n_fft);
    const fx_status status = check_floats(op, "the window", window);
    if (status != FX_OK)
        return status;
    const int64_t n = fx_length(window), left = (n_fft - n) / 2;
    if (fx_ndims(window) != 1 || n > n_fft) {
        char got[100];
        fx_summary(window, got, sizeof got);
        return fx_fail(FX_STATUS_SHAPE, op,
                       "the window is a %s, expected a vector of at most n_fft = %lld numbers", got,
                       (long long)n_fft);
    }
    window = fx_array_to(fx_array_device(like), fx_cast(window, fx_eltype(like)));
    f->window = fx_pad(window, 0, left, n_fft - n - left, 0);
    return FX_OK;
}

/* n_fft×frames: the position in the signal of every number of every frame. */
static fx_array *positions(const framing *f, int64_t frames, fx_array *like)
{
    fx_array *within = fx_range_dtype(FX_DTYPE_I64, 0, 1, f->n_fft);
    fx_array *start = fx_range_dtype(FX_DTYPE_I64, 0, (double)f->hop, frames);
    fx_array *at = fx_add(within, fx_unsqueeze(start, 0));
    return fx_array_to(fx_array_device(like), at);
}

static fx_status check_stft(const char *op, const fx_stft_args *a, framing *out)
{
    fx_status status = check_floats(op, "the signal", a->x);
    if (status == FX_OK)
        status = make_framing(out, op, a->n_fft, a->hop_length, a->window, a->x);
    if (status == FX_OK && (fx_ndims(a->x) < 1 || fx_ndims(a->x) > FX_MAX_DIMS - 1))
        status = fx_fail(FX_STATUS_SHAPE, op, "the signal has %d axes, expected 1 to %d",
                         fx_ndims(a->x), FX_MAX_DIMS - 1);
    if (status != FX_OK)
        return status;
    const int64_t n = fx_size(a->x, 0) + (a->center ? 2 * (a->n_fft / 2) : 0);
    if (n < a->n_fft || (a->center && a->n_fft / 2 >= fx_size(a->x, 0)))
        return fx_fail(FX_STATUS_SHAPE, op, "a signal of %lld numbers is too short for n_fft %lld",
                       (long long)fx_size(a->x, 0), (long long)a->n_fft);
    return FX_OK;
}

/* rows×frames×…, from rows×(frames·…). */
static fx_array *spectrum_shape(fx_array *m, int64_t rows, int64_t frames, fx_array *signal)
{
    int64_t sizes[FX_MAX_DIMS] = {rows, frames};
    for (int i = 1; i < fx_ndims(signal); i++)
        sizes[i + 1] = fx_size(signal, i);
    return fxi_reshape(m, fx_ndims(signal) + 1, sizes);
}

static void transform(const fx_stft_args *a, const framing *f, fx_array *out[2])
{
    const int64_t reach = a->n_fft / 2, rows = reach + 1;
    fx_array *x = a->center ? fx_pad_reflect(a->x, 0, reach, reach) : a->x;
    const int64_t frames = (fx_size(x, 0) - a->n_fft) / f->hop + 1;
    fx_array *cut = fx_gather(x, positions(f, frames, x), 0);
    if (!f->ones)
        cut = fx_mul(cut, f->window);
    if (a->normalized)
        cut = fx_mul(cut, 1 / sqrt((double)a->n_fft));
    cut = fx_reshape(cut, a->n_fft, -1);
    for (int k = 0; k < 2; k++) {
        fx_array *part = fx_matmul(waves(rows, a->n_fft, k, x), cut);
        out[k] = spectrum_shape(k ? fx_neg(part) : part, rows, frames, a->x);
    }
}

void *fxi_stft(const fx_stft_args *given)
{
    FXI_OPERATION("stft");
    FXI_TAKE_OPTIONS(fx_stft_args, FXI_STFT_ARGS, a, "stft", given);
    framing f;
    const fx_status status = a_ok ? check_stft("stft", &a, &f) : FX_STATUS_ARGUMENT;
    if (status != FX_OK)
        return fx_error_array(status);
    FXI_SCOPE;
    fx_array *parts[2];
    transform(&a, &f, parts);
    return fx_keep(fx_tuple(parts[0], parts[1]));
}

/* x^(power/2). The derivative of a root at 0 is infinite, so 0 is replaced by 1 before the root,
 * and the result by 0: silence gives 0, and no gradient. */
static fx_array *root_power(fx_array *x, double power)
{
    fx_array *zero = fx_eq(x, 0), *safe = fx_where(zero, 1, x);
    return fx_where(zero, 0, power == 1 ? fx_sqrt(safe) : fx_pow(safe, power / 2));
}

fx_array *fxi_spectrogram(const fx_stft_args *given)
{
    FXI_OPERATION("spectrogram");
    FXI_TAKE_OPTIONS(fx_stft_args, FXI_STFT_ARGS, a, "spectrogram", given);
    framing f;
    fx_status status = a_ok ? check_floats("spectrogram", "the signal", a.x) : FX_STATUS_ARGUMENT;
    if (status == FX_OK && (a.pad < 0 || !(a.power > 0)))
        status = fx_fail(FX_STATUS_ARGUMENT, "spectrogram",
                         "expects pad ≥ 0 and power > 0, got pad = %lld and power = %g",
                         (long long)a.pad, a.power);
    if (status != FX_OK)
        return fx_error_array(status);
    FXI_SCOPE;
    if (a.pad && fx_ndims(a.x) > 0)
        a.x = fx_pad(a.x, 0, a.pad, a.pad, 0);
    status = check_stft("spectrogram", &a, &f);
    if (status != FX_OK)
        return fx_error_array(status);
    fx_array *parts[2];
    transform(&a, &f, parts);
    fx_array *square = fx_add(fx_square(parts[0]), fx_square(parts[1]));
    if (a.window_normalized)
        square = fx_div(square, fx_sum(fx_square(f.window)));
    return fx_keep(a.power == 2 ? square : root_power(square, a.power));
}

/* ---- back to the signal ---------------------------------------------------------------------- */

static fx_status check_istft(const fx_istft_args *a, framing *out)
{
    fx_status status = check_parts("istft", a->re, a->im);
    if (status == FX_OK && !a->im)
        status = fx_fail(FX_STATUS_ARGUMENT, "istft", "the imaginary part is NULL");
    if (status == FX_OK)
        status = make_framing(out, "istft", a->n_fft, a->hop_length, a->window, a->re);
    if (status == FX_OK &&
        (fx_ndims(a->re) < 2 || fx_size(a->re, 0) != a->n_fft / 2 + 1 || fx_size(a->re, 1) < 1)) {
        char got[100];
        fx_summary(a->re, got, sizeof got);
        status = fx_fail(FX_STATUS_SHAPE, "istft",
                         "expected a spectrum of %lld×frames with n_fft %lld, got a %s",
                         (long long)a->n_fft / 2 + 1, (long long)a->n_fft, got);
    }
    if (status == FX_OK && a->length < 0)
        status = fx_fail(FX_STATUS_ARGUMENT, "istft", "length is %lld, expected at least 0",
                         (long long)a->length);
    int64_t n;
    if (status == FX_OK && (a->length > INT64_MAX / 2 || a->n_fft > INT64_MAX / 2 ||
                            !fxi_mul_i64(fx_size(a->re, 1), out->hop, &n) || n > INT64_MAX / 2))
        status =
            fx_fail(FX_STATUS_SHAPE, "istft",
                    "a signal of %lld frames, hop %lld and length %lld has more than 2^62 samples",
                    (long long)fx_size(a->re, 1), (long long)out->hop, (long long)a->length);
    return status;
}

/* n_fft×(frames·…): the inverse transforms. Each row also counts as its conjugate, except
 * the first row, and the last one if n_fft is even. */
static fx_array *frames_of(const fx_istft_args *a)
{
    const int64_t n = a->n_fft, rows = n / 2 + 1;
    fx_array *k = fx_range_dtype(FX_DTYPE_I64, 0, 1, rows);
    fx_array *once = fx_or(fx_eq(k, 0), fx_eq(fx_mul(k, 2), n));
    /* Divided after the conversion: a choice between two literals is Float32. */
    fx_array *weight = fx_div(fx_cast(fx_where(once, 1, 2), fx_eltype(a->re)), (double)n);
    fx_array *c = fx_mul(waves(rows, n, false, a->re), weight);
    fx_array *s = fx_mul(waves(rows, n, true, a->re), weight);
    return fx_sub(fx_matmul(fx_transpose(c), fx_reshape(a->re, rows, -1)),
                  fx_matmul(fx_transpose(s), fx_reshape(a->im, rows, -1)));
}

fx_array *fxi_istft(const fx_istft_args *given)
{
    FXI_OPERATION("istft");
    FXI_TAKE_OPTIONS(fx_istft_args, FXI_ISTFT_ARGS, a, "istft", given);
    framing f;
    const fx_status status = a_ok ? check_istft(&a, &f) : FX_STATUS_ARGUMENT;
    if (status != FX_OK)
        return fx_error_array(status);
    FXI_SCOPE;
    const int64_t frames = fx_size(a.re, 1), n = (frames - 1) * f.hop + a.n_fft;
    int64_t sizes[FX_MAX_DIMS] = {a.n_fft};
    for (int i = 1; i < fx_ndims(a.re); i++)
        sizes[i] = fx_size(a.re, i);
    fx_array *each = fxi_reshape(frames_of(&a), fx_ndims(a.re), sizes);
    if (a.normalized)
        each = fx_mul(each, sqrt((double)a.n_fft));
    fx_array *at = positions(&f, frames, a.re);
    fx_array *y = fx_scatter(FX_REDUCE_SUM, fx_mul(each, f.window), at, 0, n);
    fx_array *squares = fx_expand(fx_square(f.window), a.n_fft, frames);
    fx_array *sum = fx_scatter(FX_REDUCE_SUM, squares, at, 0, n);
    y = fx_where(fx_gt(sum, 1e-11), fx_div(y, fx_max(sum, 1e-11)), 0);
    const int64_t start = a.center ? a.n_fft / 2 : 0;
    const int64_t stop = a.length ? start + a.length : a.center ? n - a.n_fft / 2 : n;
    if (stop > n)
        y = fx_pad(y, 0, 0, stop - n, 0);
    return fx_keep(fx_slice(y, 0, start, stop > start ? stop : start));
}

/* ---- mel scale ------------------------------------------------------------------------------- */

static double mel_of(double f)
{
    return 2595 * log10(1 + f / 700);
}

static double hz_of(double mel)
{
    return 700 * (pow(10, mel / 2595) - 1);
}

static double triangle(double f, const double corners[3])
{
    const double up = (f - corners[0]) / (corners[1] - corners[0]);
    const double down = (corners[2] - f) / (corners[2] - corners[1]);
    return fmax(0, fmin(up, down));
}

fx_array *fx_melscale_filterbanks(int64_t n_freqs, int64_t n_mels, int64_t sample_rate, double fmin,
                                  double fmax)
{
    static const char *const op = "melscale_filterbanks";
    FXI_OPERATION(op);
    const double top = (double)(sample_rate / 2), high = fmax < 0 ? top : fmax;
    if (n_freqs < 2 || n_mels < 1 || n_freqs > INT32_MAX || n_mels > INT32_MAX)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, op,
                                      "expects n_freqs ≥ 2 and n_mels ≥ 1, got %lld and %lld",
                                      (long long)n_freqs, (long long)n_mels));
    if (!(fmin >= 0 && fmin < high && isfinite(high)))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, op,
                                      "expects 0 ≤ fmin < fmax < Inf, got %g and %g", fmin, high));
    float *v = fxi_calloc((size_t)n_freqs * (size_t)n_mels, sizeof *v);
    if (!v)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, op, "out of memory"));
    const double low = mel_of(fmin), step = (mel_of(high) - low) / (double)(n_mels + 1);
    for (int64_t m = 0; m < n_mels; m++) {
        double corners[3];
        for (int i = 0; i < 3; i++)
            corners[i] = hz_of(low + step * (double)(m + i));
        for (int64_t k = 0; k < n_freqs; k++)
            v[m * n_freqs + k] = (float)triangle(top * (double)k / (double)(n_freqs - 1), corners);
    }
    fx_array *y = fx_from(FX_DTYPE_F32, v, n_freqs, n_mels);
    fxi_free(v);
    return y;
}
