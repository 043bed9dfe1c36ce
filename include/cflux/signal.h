/* cflux/signal.h: windows, Fourier transforms and spectrograms of signals (NNlib's names).
 *
 * There are no complex numbers: a spectrum is a tuple of two arrays of one shape, real and
 * imaginary parts. Transforms are products with matrices of cosines and sines, which are computed
 * in double precision, from angles reduced to 0 … 2π. They run on the device of the signal, in its
 * element type, and are differentiable; a transform of n numbers takes time in proportion to n².
 * Axis 0 of a signal is time; further axes are channels and batch.
 *
 * Errors: FX_STATUS_DTYPE if an array is not floating-point; FX_STATUS_SHAPE if sizes do not fit;
 * FX_STATUS_ARGUMENT for NULL and for an option out of range. */
#ifndef CFLUX_SIGNAL_H
#define CFLUX_SIGNAL_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* Windows of n numbers in Float32, i = 0 … n − 1, with m = n if `periodic`, else n − 1:
 *   hann      0.5 − 0.5·cos(2πi/m)
 *   hamming   alpha − beta·cos(2πi/m); NNlib's defaults: alpha = 0.54, beta = 0.46
 *   blackman  0.42 − 0.5·cos(2πi/m) + 0.08·cos(4πi/m)
 * A window of one number is 1. FX_STATUS_ARGUMENT for a negative n. */
FX_API fx_array *fx_hann_window(int64_t n, bool periodic);
FX_API fx_array *fx_hamming_window(int64_t n, bool periodic, double alpha, double beta);
FX_API fx_array *fx_blackman_window(int64_t n, bool periodic);

/* The discrete Fourier transform along an axis: X[k] = Σ_j x[j]·e^(−2πi·jk/n), a tuple of real and
 * imaginary part with the shape of re. im is the imaginary part of x (NULL: zeros). With `inverse`
 * the exponent is +2πi·jk/n, and the sum is divided by n. */
FX_API void *fx_dft(fx_array *re, fx_array *im, int axis, bool inverse);

/* Options of fx_stft and fx_spectrogram. */
/* clang-format off */
#define FXI_STFT_ARGS(F)                                                                           \
    F(fx_array *, x, FXI_NULL)         /* the signal: time×… */                                    \
    F(int64_t, n_fft, 0)               /* samples per frame */                                     \
    F(int64_t, hop_length, 0)          /* samples between the starts of two frames; 0: ⌊n_fft/4⌋ */ \
    F(fx_array *, window, FXI_NULL)    /* a vector of at most n_fft numbers, which is padded with  \
                                          zeros at both ends; NULL: ones */                        \
    F(bool, center, true)              /* true: reflect ⌊n_fft/2⌋ samples at both ends of x, so    \
                                          that frame t is centred at t·hop_length */               \
    F(bool, normalized, false)         /* true: divide by √n_fft */                                \
    F(int64_t, pad, 0)                 /* fx_spectrogram: zeros added at both ends of x */         \
    F(double, power, 2)                /* fx_spectrogram: exponent of the magnitude, above 0 */    \
    F(bool, window_normalized, false)  /* fx_spectrogram: divide the spectrum by √Σwindow² */
#define FXI_ISTFT_ARGS(F)                                                                          \
    F(fx_array *, re, FXI_NULL)        /* real part, as from fx_stft */                            \
    F(fx_array *, im, FXI_NULL)        /* imaginary part */                                        \
    F(int64_t, n_fft, 0)               /* samples per frame */                                     \
    F(int64_t, hop_length, 0)          /* as in fx_stft */                                         \
    F(fx_array *, window, FXI_NULL)    /* as in fx_stft */                                         \
    F(bool, center, true)              /* true: remove ⌊n_fft/2⌋ samples at both ends */           \
    F(bool, normalized, false)         /* true: multiply by √n_fft */                              \
    F(int64_t, length, 0)              /* samples of the result; 0: all that frames cover */
/* clang-format on */
FXI_OPTION_STRUCT(fx_stft_args, FXI_STFT_ARGS);
FXI_OPTION_STRUCT(fx_istft_args, FXI_ISTFT_ARGS);
/* fx_stft(x, 400, .hop_length = 160, .window = w): the short-time Fourier transform, a tuple of
 * real and imaginary part, each (⌊n_fft/2⌋ + 1)×frames×…: frame t is the transform of the samples
 * t·hop_length … t·hop_length + n_fft − 1, multiplied by the window. frames = ⌊(n −
 * n_fft)/hop_length⌋ + 1, n the length with reflections. NNlib.stft. */
FX_API void *fxi_stft(const fx_stft_args *a);
/* fx_istft(re, im, 400, …): the signal of a spectrum from fx_stft with the same options: frames are
 * transformed back, multiplied by the window, added, and divided by the sum of the squared windows
 * (0 at positions that no window covers). NNlib.istft. */
FX_API fx_array *fxi_istft(const fx_istft_args *a);
/* fx_spectrogram(x, 400, .power = 1): (re² + im²)^(power/2) of fx_stft. NNlib.spectrogram. */
FX_API fx_array *fxi_spectrogram(const fx_stft_args *a);
/* The triangular filters of the mel scale, n_freqs×n_mels, Float32:
 * fx_matmul(fx_transpose(filters), s) is the mel spectrogram, n_mels×frames, of a spectrogram s.
 * The frequencies of the rows are n_freqs equally spaced numbers from 0 to ⌊sample_rate/2⌋. The
 * filters' corners are n_mels + 2 frequencies from fmin to fmax, equally spaced in mel =
 * 2595·log10(1 + f/700). fmax below 0: ⌊sample_rate/2⌋. FX_STATUS_ARGUMENT unless n_freqs ≥ 2,
 * n_mels ≥ 1 and 0 ≤ fmin < fmax. NNlib.melscale_filterbanks. */
FX_API fx_array *fx_melscale_filterbanks(int64_t n_freqs, int64_t n_mels, int64_t sample_rate,
                                         double fmin, double fmax);

/* Macros with options: fx_stft(x, 400, .center = false). */
#define fx_stft(...)                                                                               \
    FXI_CALL(fxi_stft(FXI_OPTIONS(fx_stft_args, FXI_STFT_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define fx_spectrogram(...)                                                                        \
    FXI_CALL(fxi_spectrogram(FXI_OPTIONS(fx_stft_args, FXI_STFT_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define fx_istft(...)                                                                              \
    FXI_CALL(fxi_istft(FXI_OPTIONS(fx_istft_args, FXI_ISTFT_ARGS(FXI_DEFAULT).re = __VA_ARGS__)))

FXI_END_C
#endif
