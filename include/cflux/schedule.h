/* cflux/schedule.h: learning-rate schedules, and conditions that end or change a training run.
 * Names and formulas are those of ParameterSchedulers.jl 0.4 and Flux 0.16. A step of a schedule is
 * an epoch, or a training step with .schedule_steps of fx_train; steps count from 0.
 *
 *     fx_schedule *s = fx_schedule_warmup(0, 5, fx_schedule_cosine(1e-3, 0, 45, false));
 *     fx_train(loss, model, data, opt, .epochs = 50, .schedule = s);
 *
 * In a loop of your own, call fx_adjust_eta(opt, fx_schedule_at(s, epoch)). */
#ifndef CFLUX_SCHEDULE_H
#define CFLUX_SCHEDULE_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* ---- schedules ------------------------------------------------------------------------------- */
typedef struct fx_schedule fx_schedule; /* opaque: a function of the step; owned by the scope */
/* The value at step k; a negative k counts as 0. NaN and an error record if s is not a schedule. */
FX_API double fx_schedule_at(const fx_schedule *s, int64_t k);
/* Constructors. They return an error object, with FX_STATUS_ARGUMENT, for numbers that are not
 * finite, for sizes and periods that are not positive, and for more than 64 schedules in one. The
 * word at the end of a comment, such as "Step", is the name in ParameterSchedulers.jl. */
FX_API fx_schedule *fx_schedule_constant(double value); /* `value` at every step. Constant. */
/* start·decay^⌊k/size⌋. Step. */
FX_API fx_schedule *fx_schedule_step(double start, double decay, int64_t size);
FX_API fx_schedule *fx_schedule_exp(double start, double decay); /* start·decay^k. Exp. */
/* start / (1 + decay·k)^degree. Inv. */
FX_API fx_schedule *fx_schedule_inv(double start, double decay, double degree);
/* start·(1 − k/steps)^degree; 0 from step `steps` on. Poly. */
FX_API fx_schedule *fx_schedule_poly(double start, double degree, int64_t steps);
/* With m = min(a, b) and d = |a − b|: m + d·½(1 + cos(π·k/period)). With `restart` k is taken
 * modulo the period, else the cosine continues. CosAnneal. */
FX_API fx_schedule *fx_schedule_cosine(double a, double b, int64_t period, bool restart);
/* m + d·f·tri(k), with m and d as in fx_schedule_cosine, and tri(k) = 1 − |1 − 2·(k mod
 * period)/period|, which rises from 0 to 1 and falls back to 0 within a period. The factor f:
 *   fx_schedule_triangle        1. Triangle.
 *   fx_schedule_triangle_half   ½^⌊k/period⌋. TriangleDecay2.
 *   fx_schedule_triangle_exp    decay^k. TriangleExp.
 * fx_schedule_sin, _sin_half and _sin_exp have |sin(π·k/period)| instead of tri(k). Sin, SinDecay2,
 * SinExp. */
FX_API fx_schedule *fx_schedule_triangle(double a, double b, int64_t period);
FX_API fx_schedule *fx_schedule_triangle_half(double a, double b, int64_t period);
FX_API fx_schedule *fx_schedule_triangle_exp(double a, double b, int64_t period, double decay);
FX_API fx_schedule *fx_schedule_sin(double a, double b, int64_t period);
FX_API fx_schedule *fx_schedule_sin_half(double a, double b, int64_t period);
FX_API fx_schedule *fx_schedule_sin_exp(double a, double b, int64_t period, double decay);
/* Rises linearly from `start` at step 0 to the first value of `then` at step `steps`. From there on
 * the values are those of `then`, from its beginning. */
FX_API fx_schedule *fx_schedule_warmup(double start, int64_t steps, fx_schedule *then);
/* Uses part i for steps[i] steps; each part counts its steps from 0. The last part continues
 * without end. At most 16 parts. Sequence. */
FX_API fx_schedule *fx_schedule_sequence(int n, fx_schedule *const *parts, const int64_t *steps);
/* Repeats the first `period` steps of the part. Loop. */
FX_API fx_schedule *fx_schedule_loop(fx_schedule *part, int64_t period);
/* Rises along a half cosine from `start` to `most` in the first ⌈share·steps⌉ steps, and falls
 * along another to `end` in the rest; `end` after them. FX_STATUS_ARGUMENT if share is not from 0
 * to 1. OneCycle; its defaults are start = most / 25, end = most / 10⁵, share = 0.25. Smith, Topin,
 * 2018. */
FX_API fx_schedule *fx_schedule_onecycle(int64_t steps, double most, double start, double end,
                                         double share);
/* The value of `part` at step ⌈(k + 1) / rate⌉ − 1: turns a schedule that counts epochs into one
 * that counts training steps, with `rate` training steps per epoch. Interpolator. */
FX_API fx_schedule *fx_schedule_interpolator(fx_schedule *part, double rate);
/* The value of `part` at step k + offset − 1: begins with value number `offset` of `part`, counted
 * from 1. Shifted. */
FX_API fx_schedule *fx_schedule_shifted(fx_schedule *part, int64_t offset);
/* A schedule whose arguments are schedules too. At step k it has the value of a schedule of the
 * same kind as `kind`, whose arguments are the values of numbers[0 … n−1] at k. `kind` must not
 * contain other schedules; its own arguments are not used. The arguments have the order of
 * ParameterSchedulers.jl, where the first two of cosines, triangles and sines are the range d and
 * the offset m; arguments with a default may be missing. NaN at a step where the period or the
 * number of steps is not positive. ComposedSchedule. */
FX_API fx_schedule *fx_schedule_composed(fx_schedule *kind, int n, fx_schedule *const *numbers);

/* ---- conditions ------------------------------------------------------------------------------ */
/* Counts how often a condition was true in a row. Initialise it with one of the functions below. */
typedef struct fx_trigger {
    int64_t wait, count; /* times in a row after which the trigger is true; times so far */
    double score;        /* best or previous score; initially Inf */
    double least;        /* smaller differences of scores do not count */
} fx_trigger;
/* fx_patience_over returns true if the condition was true in `wait` calls in a row, including this
 * one. Flux.patience. */
FX_API fx_trigger fx_patience(int64_t wait);
FX_API bool fx_patience_over(fx_trigger *t, bool condition);
/* fx_stop_early returns true if, in `wait` calls in a row, best − score was less than `least`; best
 * is the lowest earlier score. With `least` 0 an equal score therefore counts as better.
 * Flux.early_stopping: fx_trigger t = fx_early_stopping(5, 0); … if (fx_stop_early(&t, loss)). */
FX_API fx_trigger fx_early_stopping(int64_t wait, double least);
FX_API bool fx_stop_early(fx_trigger *t, double score);
/* fx_on_plateau returns true if the score differed by less than `least` from the previous one for
 * `wait` calls in a row. Flux.plateau, whose default for `least` is 1e-6. */
FX_API fx_trigger fx_plateau(int64_t wait, double least);
FX_API bool fx_on_plateau(fx_trigger *t, double score);
/* fx_throttle_pass returns true at most once in `seconds` seconds. The first call starts the clock
 * and returns `leading`. Flux.throttle without trailing calls, which need a timer. */
typedef struct fx_throttle {
    double seconds;
    double next; /* time after which fx_throttle_pass is true again; 0: not called yet */
    bool leading;
} fx_throttle;
FX_API fx_throttle fx_throttle_every(double seconds, bool leading);
FX_API bool fx_throttle_pass(fx_throttle *t);

FXI_END_C
#endif
