/* test_signal.c: windows, transforms and spectrograms on every device.
 *
 * Windows are compared with numbers worked out by hand, transforms with sums written out here in
 * double, inverse transforms with the signal, filters with their corners, and gradients with
 * central differences in Float64.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "every_device.h"
#include "refused.h"

static const double PI_ = 3.14159265358979323846;

static void near_to(fx_array *x, int64_t n, const double *want, double tolerance)
{
    static double got[4096];
    if (fx_length(x) != n || fx_read_as(x, FX_DTYPE_F64, got, n) != FX_OK)
        fail_msg("%lld numbers, not %lld: %s", (long long)fx_length(x), (long long)n,
                 fx_error_take().message);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance))
            fail_msg("number %lld is %.10g, not %.10g", (long long)i, got[i], want[i]);
}
#define NEAR(x, ...)                                                                               \
    near_to((x), (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)),                \
            (const double[]){__VA_ARGS__}, 1e-6)

static double wave(int64_t i)
{
    return sin(0.7 * (double)i) + 0.3 * cos(2.1 * (double)i) - 0.1;
}

/* n×2: wave(i) and wave(3·i + 1). */
static fx_array *signal_of(fx_dtype type, int64_t n, double out[])
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = wave(i);
        out[n + i] = wave(3 * i + 1);
    }
    return fx_array_to(device, fx_cast(fx_from(FX_DTYPE_F64, out, n, 2), type));
}

static void windows(void **state)
{
    (void)state;
    FX_SCOPE;
    NEAR(fx_hann_window(4, true), 0, 0.5, 1, 0.5);
    NEAR(fx_hann_window(5, false), 0, 0.5, 1, 0.5, 0);
    NEAR(fx_hamming_window(4, true, 0.54, 0.46), 0.08, 0.54, 1, 0.54);
    NEAR(fx_blackman_window(4, true), 0, 0.34, 1, 0.34);
    NEAR(fx_hann_window(1, false), 1);
    assert_int_equal(fx_length(fx_hann_window(0, true)), 0);
    refused(fx_hann_window(-1, true), FX_STATUS_ARGUMENT, "n is -1");
}

static void transforms(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 7 };
    double v[2 * N], re[N], im[N];
    fx_array *x = signal_of(FX_DTYPE_F32, N, v);
    fx_array *a = fx_slice(x, 1, 0, 1), *b = fx_slice(x, 1, 1, 2);
    for (int k = 0; k < N; k++) {
        re[k] = im[k] = 0;
        for (int j = 0; j < N; j++) {
            const double c = cos(2 * PI_ * j * k / N), s = sin(2 * PI_ * j * k / N);
            re[k] += v[j] * c + v[N + j] * s; /* (a + ib)(c − is) */
            im[k] += v[N + j] * c - v[j] * s;
        }
    }
    void *f = fx_dft(a, b, 0, false);
    near_to(fx_child(f, 0), N, re, 2e-6);
    near_to(fx_child(f, 1), N, im, 2e-6);
    void *back = fx_dft(fx_child(f, 0), fx_child(f, 1), 0, true);
    near_to(fx_child(back, 0), N, v, 2e-6);
    near_to(fx_child(back, 1), N, v + N, 2e-6);
    void *across = fx_dft(x, NULL, 1, false); /* of pairs: sum and difference */
    near_to(fx_vec(fx_sub(fx_slice(fx_child(across, 0), 1, 0, 1), fx_add(a, b))), N,
            (const double[N]){0}, 1e-6);
    near_to(fx_vec(fx_sub(fx_slice(fx_child(across, 0), 1, 1, 2), fx_sub(a, b))), N,
            (const double[N]){0}, 1e-6);
    refused(fx_dft(a, x, 0, false), FX_STATUS_SHAPE, "the real part is a ");
    refused(fx_dft(a, NULL, 2, false), FX_STATUS_ARGUMENT, "no axis 2");
    refused(fx_dft(fx_cast(a, FX_DTYPE_I32), NULL, 0, false), FX_STATUS_DTYPE, "Int32");
    refused(fx_dft(NULL, NULL, 0, false), FX_STATUS_ARGUMENT, "NULL");
}

/* The spectrum by its definition: reflected ends, window in the middle. */
enum { T = 30, FFT = 8, HOP = 3, LONG = 6, ROWS = FFT / 2 + 1, FRAMES = 1 + T / HOP };
static void by_definition(const double *v, const double *w, double *re, double *im)
{
    for (int t = 0; t < FRAMES; t++)
        for (int k = 0; k < ROWS; k++) {
            re[t * ROWS + k] = im[t * ROWS + k] = 0;
            for (int j = 0; j < FFT; j++) {
                int at = t * HOP + j - FFT / 2;
                at = at < 0 ? -at : at >= T ? 2 * (T - 1) - at : at;
                const double x = v[at] * w[j], angle = 2 * PI_ * j * k / FFT;
                re[t * ROWS + k] += x * cos(angle);
                im[t * ROWS + k] -= x * sin(angle);
            }
        }
}

static void short_time_transforms(void **state)
{
    (void)state;
    FX_SCOPE;
    double v[2 * T], w[FFT] = {0}, re[2 * ROWS * FRAMES], im[2 * ROWS * FRAMES];
    fx_array *x = signal_of(FX_DTYPE_F32, T, v), *hann = fx_hann_window(LONG, true);
    for (int j = 0; j < LONG; j++)
        w[j + 1] = 0.5 - 0.5 * cos(2 * PI_ * j / LONG);
    by_definition(v, w, re, im);
    by_definition(v + T, w, re + ROWS * FRAMES, im + ROWS * FRAMES);
    void *s = fx_stft(x, FFT, .hop_length = HOP, .window = hann);
    assert_int_equal(fx_ndims(fx_child(s, 0)), 3);
    assert_int_equal(fx_size(fx_child(s, 0), 0), ROWS);
    assert_int_equal(fx_size(fx_child(s, 0), 1), FRAMES);
    near_to(fx_child(s, 0), 2 * ROWS * FRAMES, re, 2e-6);
    near_to(fx_child(s, 1), 2 * ROWS * FRAMES, im, 2e-6);
    double power[2 * ROWS * FRAMES], sum = 0;
    for (int i = 0; i < 2 * ROWS * FRAMES; i++)
        power[i] = re[i] * re[i] + im[i] * im[i];
    near_to(fx_spectrogram(x, FFT, .hop_length = HOP, .window = hann), 2 * ROWS * FRAMES, power,
            2e-5);
    for (int j = 0; j < FFT; j++)
        sum += w[j] * w[j];
    for (int i = 0; i < 2 * ROWS * FRAMES; i++)
        power[i] = sqrt(power[i] / sum);
    near_to(fx_spectrogram(x, FFT, .hop_length = HOP, .window = hann, .power = 1,
                           .window_normalized = true),
            2 * ROWS * FRAMES, power, 1e-5);
    /* Zeros at both ends, then no reflection: frame 0 has the zeros and x[0], x[1], …. */
    fx_array *ones = fx_array_to(device, fx_ones(6));
    NEAR(fx_slice(fx_vec(fx_spectrogram(ones, 4, .pad = 3, .center = false, .hop_length = 4)), 0, 0,
                  1),
         1);
    /* Silence has no slope: the gradient is 0, not NaN. */
    fx_array *silence = fx_array_to(device, fx_zeros(6)), *g = NULL;
    for (int i = 1; i <= 4; i++) {
        fx_array *loss = fx_sum(fx_spectrogram(silence, 4, .power = 0.5 * i));
        assert_int_equal(fx_gradient_of(loss, &silence, 1, &g), FX_OK);
        NEAR(fx_sum(fx_abs(g)), 0);
        NEAR(loss, 0);
    }
    refused(fx_stft(x, 0), FX_STATUS_ARGUMENT, "must be positive");
    refused(fx_stft(x, 3), FX_STATUS_ARGUMENT, "hop_length 0");
    refused(fx_stft(x, 80), FX_STATUS_SHAPE, "too short");
    refused(fx_stft(x, 4, .window = fx_ones(5)), FX_STATUS_SHAPE, "at most n_fft = 4");
    refused(fx_spectrogram(x, 4, .power = 0), FX_STATUS_ARGUMENT, "power = 0");
    refused(fx_spectrogram(x, 4, .pad = -1), FX_STATUS_ARGUMENT, "pad = -1");
}

static void inverse_transforms(void **state)
{
    (void)state;
    FX_SCOPE;
    double v[2 * 24];
    fx_array *x = signal_of(FX_DTYPE_F32, 24, v), *w = fx_hann_window(8, true);
    for (int odd = 0; odd < 2; odd++) {
        const int64_t n = 8 - odd; /* an odd n has no middle row of its own */
        fx_array *window = odd ? NULL : w;
        void *s = fx_stft(x, n, .hop_length = 2, .window = window, .normalized = true);
        fx_array *y = fx_istft(fx_child(s, 0), fx_child(s, 1), n, .hop_length = 2, .window = window,
                               .normalized = true, .length = 24);
        near_to(y, 48, v, 2e-6);
    }
    /* Float64: 1/6 and 1/7 are no Float32 numbers. */
    fx_array *wide = signal_of(FX_DTYPE_F64, 24, v);
    for (int64_t n = 6; n <= 7; n++) {
        void *f = fx_stft(wide, n, .hop_length = 2);
        near_to(fx_istft(fx_child(f, 0), fx_child(f, 1), n, .hop_length = 2, .length = 24), 48, v,
                1e-12);
    }
    void *s = fx_stft(x, 8, .center = false, .hop_length = 4);
    near_to(fx_istft(fx_child(s, 0), fx_child(s, 1), 8, .center = false, .hop_length = 4), 48, v,
            2e-6);
    fx_array *longer =
        fx_istft(fx_child(s, 0), fx_child(s, 1), 8, .center = false, .hop_length = 4, .length = 30);
    assert_int_equal(fx_size(longer, 0), 30);
    NEAR(fx_slice(fx_slice(longer, 0, 24, 26), 1, 0, 1), 0, 0);
    refused(fx_istft(fx_child(s, 0), NULL, 8), FX_STATUS_ARGUMENT, "imaginary part is NULL");
    refused(fx_istft(fx_child(s, 0), fx_child(s, 1), 10), FX_STATUS_SHAPE, "6×frames");
    refused(fx_istft(fx_child(s, 0), fx_child(s, 1), 8, .length = -1), FX_STATUS_ARGUMENT,
            "length is -1");
    fx_array *re = fx_array_to(device, fx_ones(5, 3));
    refused(fx_istft(re, re, 8, .hop_length = INT64_MAX), FX_STATUS_SHAPE,
            "more than 2^62 samples");
    refused(fx_istft(re, re, 8, .length = INT64_MAX), FX_STATUS_SHAPE, "more than 2^62 samples");
}

/* d Σ spectrogram·c against central differences. */
static double loss_of(fx_array *x, fx_array **out_gradient)
{
    fx_array *c = fx_array_to(device, fx_cast(fx_range(1, 0.25, 5 * 7), FX_DTYPE_F64));
    fx_array *s = fx_spectrogram(x, 8, .hop_length = 2, .window = fx_hann_window(8, true));
    fx_array *loss = fx_sum(fx_mul(fx_vec(s), c));
    if (out_gradient)
        assert_int_equal(fx_gradient_of(loss, &x, 1, out_gradient), FX_OK);
    return fx_item(loss);
}

static void gradients(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 12 };
    double v[N], want[N];
    fx_array *g;
    for (int i = 0; i < N; i++)
        v[i] = wave(i);
    loss_of(fx_array_to(device, fx_from(FX_DTYPE_F64, v, N)), &g);
    for (int i = 0; i < N; i++) {
        const double h = 1e-5, x = v[i];
        v[i] = x + h;
        const double up = loss_of(fx_array_to(device, fx_from(FX_DTYPE_F64, v, N)), NULL);
        v[i] = x - h;
        want[i] = (up - loss_of(fx_array_to(device, fx_from(FX_DTYPE_F64, v, N)), NULL)) / (2 * h);
        v[i] = x;
    }
    near_to(g, N, want, 1e-6);
}

/* Each filter is 0 outside its corners and rises to at most 1 between them. */
static void mel_filters(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { FREQS = 201, MELS = 10 };
    fx_array *f = fx_melscale_filterbanks(FREQS, MELS, 16000, 0, -1);
    assert_int_equal(fx_size(f, 0), FREQS);
    assert_int_equal(fx_size(f, 1), MELS);
    const float *v = fx_data(f);
    const double top = 2595 * log10(1 + 8000 / 700.0);
    for (int m = 0; m < MELS; m++)
        for (int k = 0; k < FREQS; k++) {
            const double hz = 40.0 * k, x = v[m * FREQS + k];
            double corner[3];
            for (int i = 0; i < 3; i++)
                corner[i] = 700 * (pow(10, top * (m + i) / (MELS + 1) / 2595) - 1);
            const double want = hz <= corner[0] || hz >= corner[2] ? 0
                                : hz <= corner[1] ? (hz - corner[0]) / (corner[1] - corner[0])
                                                  : (corner[2] - hz) / (corner[2] - corner[1]);
            assert_true(fabs(x - want) < 1e-6);
        }
    refused(fx_melscale_filterbanks(1, 4, 16000, 0, -1), FX_STATUS_ARGUMENT, "n_freqs ≥ 2");
    refused(fx_melscale_filterbanks(9, 4, 16000, 500, 400), FX_STATUS_ARGUMENT, "500 and 400");
    refused(fx_melscale_filterbanks(9, 4, 16000, 0, INFINITY), FX_STATUS_ARGUMENT, "0 and inf");
}

static int run(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(transforms),
        cmocka_unit_test(short_time_transforms),
        cmocka_unit_test(inverse_transforms),
        cmocka_unit_test(gradients),
        cmocka_unit_test(mel_filters),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_every_device(run);
}
