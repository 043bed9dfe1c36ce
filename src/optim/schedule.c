/* schedule.c: learning-rate schedules as objects, and triggers: see cflux/schedule.h.
 *
 * A row of the table is a kind of schedule: its name in ParameterSchedulers.jl, how many numbers it
 * has, and its function of the step. Making, checking and printing are the same for all;
 * notation_schedule.c parses what is printed here.
 */
#include "schedules.h"

#include "clock.h"
#include "error.h"
#include "julia_number.h"
#include "object_types.h"

#include <math.h>
#include <string.h>

enum { NUMBERS = 5 };
struct fx_schedule {
    fx_object base;
    double v[NUMBERS];
    fx_list parts;
    fx_dims steps; /* of the parts of a sequence */
};

static const double PI = 3.141592653589793;

/* ---- functions of the step ------------------------------------------------------------------- */

static double constant(const fx_schedule *s, double k)
{
    (void)k;
    return s->v[0];
}
/* λ·γ^⌊k/n⌋: the rate is multiplied by γ every n steps of the schedule. */
static double step(const fx_schedule *s, double k)
{
    return s->v[0] * pow(s->v[1], floor(k / s->v[2]));
}
/* λ·γᵏ */
static double exponential(const fx_schedule *s, double k)
{
    return s->v[0] * pow(s->v[1], k);
}
/* λ/(1 + kγ)ᵖ */
static double inverse(const fx_schedule *s, double k)
{
    return s->v[0] / pow(1 + s->v[1] * k, s->v[2]);
}
/* λ(1 − k/n)ᵖ, and 0 from step n on */
static double polynomial(const fx_schedule *s, double k)
{
    return k < s->v[2] ? s->v[0] * pow(1 - k / s->v[2], s->v[1]) : 0;
}

/* range·part + offset; these are the first two numbers, as in ParameterSchedulers.jl */
static double between(const fx_schedule *s, double part)
{
    return s->v[0] * part + s->v[1];
}
/* range·(1 + cos(πk/n))/2 + offset, with restarts after n steps unless they are off (Loshchilov,
 * Hutter, 2017). */
static double cosine(const fx_schedule *s, double k)
{
    const double at = s->v[3] != 0 ? fmod(k, s->v[2]) : k;
    return between(s, (1 + cos(PI * at / s->v[2])) / 2);
}
/* The triangular wave of period n, between 0 and 1 (cyclical rates: Smith, 2017). The wave of
 * sine_of has its peaks and zeros at the same steps. */
static double triangle_of(const fx_schedule *s, double k)
{
    const double at = fmod(k, s->v[2]) / s->v[2];
    return at < 0.5 ? 2 * at : 2 - 2 * at;
}
static double sine_of(const fx_schedule *s, double k)
{
    return fabs(sin(PI * k / s->v[2]));
}
/* The factor ½^⌊k/n⌋: each period is half as high as the previous one. */
static double half(const fx_schedule *s, double k)
{
    return pow(0.5, floor(k / s->v[2]));
}
static double triangle(const fx_schedule *s, double k)
{
    return between(s, triangle_of(s, k));
}
static double triangle_half(const fx_schedule *s, double k)
{
    return between(s, triangle_of(s, k) * half(s, k));
}
static double triangle_exp(const fx_schedule *s, double k)
{
    return between(s, triangle_of(s, k) * pow(s->v[3], k));
}
static double sine(const fx_schedule *s, double k)
{
    return between(s, sine_of(s, k));
}
static double sine_half(const fx_schedule *s, double k)
{
    return between(s, sine_of(s, k) * half(s, k));
}
static double sine_exp(const fx_schedule *s, double k)
{
    return between(s, sine_of(s, k) * pow(s->v[3], k));
}

static double part_at(const fx_schedule *s, int64_t i, double k)
{
    return fx_schedule_at(s->parts.items[i], k < 0x1p62 ? (int64_t)k : INT64_C(1) << 62);
}
/* Linear from `start` to the first value of the inner schedule, which then begins at its step 0. */
static double warmup(const fx_schedule *s, double k)
{
    const double start = s->v[0], steps = s->v[1];
    if (k >= steps)
        return part_at(s, 0, k - steps);
    return start + (part_at(s, 0, 0) - start) * (k / steps);
}
/* One schedule after the other: part i runs for steps[i] steps and counts them from 0. The last
 * part has no end. */
static double sequence(const fx_schedule *s, double k)
{
    int64_t i = 0;
    for (; i + 1 < s->parts.n && k >= (double)s->steps.v[i]; i++)
        k -= (double)s->steps.v[i];
    return part_at(s, i, k);
}
static double loop(const fx_schedule *s, double k)
{
    return part_at(s, 0, fmod(k, s->v[0]));
}

/* Half a cosine up to the highest rate, then half a cosine down to the final one (Smith, Topin,
 * 2018). During the rise the angle goes from π to 2π, afterwards from 0 to π. */
static double one_cycle(const fx_schedule *s, double k)
{
    const double steps = s->v[0], most = s->v[1], rise = ceil(s->v[4] * steps);
    if (k >= steps)
        return s->v[3];
    const double from = k < rise ? s->v[2] : s->v[3];
    const double angle = k < rise ? (k + rise) / rise : (k - rise) / (steps - rise);
    return fabs(from - most) * (1 + cos(PI * angle)) / 2 + fmin(from, most);
}
/* The inner schedule at ⌈(k+1)/rate⌉ − 1: for a schedule of epochs that is asked in every training
 * step, `rate` is the number of training steps of an epoch. ParameterSchedulers.jl counts from 1,
 * therefore + 1 and − 1. */
static double interpolator(const fx_schedule *s, double k)
{
    return part_at(s, 0, fmax(ceil((k + 1) / s->v[0]) - 1, 0));
}
static double shifted(const fx_schedule *s, double k)
{
    return part_at(s, 0, k + s->v[0] - 1);
}
static double composed(const fx_schedule *s, double k);

/* ---- the table ------------------------------------------------------------------------------- */

/* KIND(name, function, numbers, position of the number that must be positive (−1: none)) */
#define KINDS(KIND)                                                                                \
    KIND(Constant, constant, 1, -1)                                                                \
    KIND(Step, step, 3, 2)                                                                         \
    KIND(Exp, exponential, 2, -1)                                                                  \
    KIND(Inv, inverse, 3, -1)                                                                      \
    KIND(Poly, polynomial, 3, 2)                                                                   \
    KIND(CosAnneal, cosine, 4, 2)                                                                  \
    KIND(Triangle, triangle, 3, 2)                                                                 \
    KIND(TriangleDecay2, triangle_half, 3, 2)                                                      \
    KIND(TriangleExp, triangle_exp, 4, 2)                                                          \
    KIND(Sin, sine, 3, 2)                                                                          \
    KIND(SinDecay2, sine_half, 3, 2)                                                               \
    KIND(SinExp, sine_exp, 4, 2)                                                                   \
    KIND(Warmup, warmup, 2, 1)                                                                     \
    KIND(Sequence, sequence, 0, -1)                                                                \
    KIND(Loop, loop, 1, 0)                                                                         \
    KIND(OneCycle, one_cycle, 5, 0)                                                                \
    KIND(Interpolator, interpolator, 1, 0)                                                         \
    KIND(Shifted, shifted, 1, 0)                                                                   \
    KIND(ComposedSchedule, composed, 0, -1)
#define NAMED(name, f, numbers, positive) KIND_##name,
enum { KINDS(NAMED) ALL_KINDS };

static void describe(const void *self, fx_text *text);
static const fx_field fields[] = {{"parts", offsetof(fx_schedule, parts), FX_FIELD_LIST, false}};
static fx_schedule errors[ALL_KINDS];
static const struct row {
    fx_type type;
    double (*at)(const fx_schedule *s, double k);
    int numbers, positive;
} rows[] = {
#define ROW(id, f, n, p)                                                                           \
    {{.fxi_size = sizeof(fx_type),                                                                 \
      .name = #id,                                                                                 \
      .size = sizeof(fx_schedule),                                                                 \
      .fields = fields,                                                                            \
      .nfields = 1,                                                                                \
      .describe = describe,                                                                        \
      .error = &errors[KIND_##id],                                                                 \
      .flags = FX_TYPE_LEAF | FX_TYPE_INTERNAL},                                                   \
     f,                                                                                            \
     n,                                                                                            \
     p},
    KINDS(ROW)};

static const struct row *row_of(const void *s)
{
    const fx_type *type = s ? fx_type_of(s) : NULL;
    for (int i = 0; i < ALL_KINDS; i++)
        if (type == &rows[i].type && s != rows[i].type.error)
            return &rows[i];
    return NULL;
}

double fx_schedule_at(const fx_schedule *s, int64_t k)
{
    const struct row *r = row_of(s);
    if (r)
        return r->at(s, k > 0 ? (double)k : 0);
    fx_fail(FX_STATUS_ARGUMENT, "schedule_at", "expects a schedule, got %s", fxi_type_name(s));
    return (double)NAN;
}

/* Is a schedule of this kind written with its parts first? */
static bool parts_first(const struct row *r)
{
    return r == &rows[KIND_Interpolator] || r == &rows[KIND_Shifted] || r == &rows[KIND_Loop];
}

static void describe_numbers(const fx_schedule *s, const struct row *r, fx_text *text)
{
    char number[FXI_NUMBER_TEXT];
    for (int i = 0; r && i < r->numbers; i++) {
        const bool flag = r == &rows[KIND_CosAnneal] && i == 3;
        fx_text_add(text, "%s%s", i || parts_first(r) ? ", " : "",
                    !flag            ? fxi_float64_text(s->v[i], number)
                    : s->v[i] != 0.0 ? "true"
                                     : "false");
    }
}

static void describe(const void *self, fx_text *text)
{
    const fx_schedule *s = self;
    const struct row *r = row_of(s);
    const bool composes = r == &rows[KIND_ComposedSchedule];
    fx_text_add(text, "%s(", fx_type_of(s)->name);
    if (!parts_first(r))
        describe_numbers(s, r, text);
    for (int64_t i = 0; i < s->parts.n; i++) {
        fx_text_add(text, i || (r->numbers && !parts_first(r)) ? ", " : "");
        fx_text_add(text, composes && i == 1 ? "(" : "");
        describe(s->parts.items[i], text);
        if (s->steps.n > i)
            fx_text_add(text, " => %lld", (long long)s->steps.v[i]);
    }
    if (parts_first(r))
        describe_numbers(s, r, text);
    /* (x,) is a tuple of one */
    fx_text_add(text, !composes ? ")" : s->parts.n == 2 ? ",))" : "))");
}

/* ---- making ---------------------------------------------------------------------------------- */

enum { MOST_PARTS = 16, MOST_SCHEDULES = 64 };

static int count(const fx_schedule *s)
{
    int n = 1;
    for (int64_t i = 0; i < s->parts.n; i++)
        n += count(s->parts.items[i]);
    return n;
}

static bool check_parts(const struct row *r, const fx_schedule *init)
{
    int n = 0;
    for (int64_t i = 0; i < init->parts.n; i++) {
        const void *part = init->parts.items[i];
        if (!row_of(part)) {
            if (!part || !fx_is_error(part) || fx_error_status() == FX_OK)
                fx_fail(FX_STATUS_ARGUMENT, r->type.name, "expects schedules, got %s",
                        fxi_type_name(part));
            return false;
        }
        n += count(part);
    }
    if (n > MOST_SCHEDULES)
        fx_fail(FX_STATUS_ARGUMENT, r->type.name, "contains more than %d schedules",
                MOST_SCHEDULES);
    return n <= MOST_SCHEDULES;
}

static fx_schedule *make(int kind, const fx_schedule *init)
{
    const struct row *r = &rows[kind];
    bool ok = check_parts(r, init);
    for (int i = 0; i < r->numbers && ok; i++) {
        ok = isfinite(init->v[i]) && (i != r->positive || init->v[i] > 0);
        if (!ok && i == r->positive)
            fx_fail(FX_STATUS_ARGUMENT, r->type.name, "the %s must be positive, got %g",
                    r == &rows[KIND_Shifted]        ? "offset"
                    : r == &rows[KIND_Interpolator] ? "rate"
                                                    : "number of steps",
                    init->v[i]);
        else if (!ok)
            fx_fail(FX_STATUS_ARGUMENT, r->type.name, "expects finite numbers, got %g", init->v[i]);
    }
    return ok ? fxi_new(&r->type, init) : fx_error_object(&r->type);
}

#define MAKE(kind, ...) make(KIND_##kind, &(const fx_schedule){.v = {__VA_ARGS__}})
/* The range and the offset of a schedule between two values. */
#define BETWEEN(a, b) fabs((a) - (b)), fmin((a), (b))
fx_schedule *fx_schedule_constant(double value)
{
    return MAKE(Constant, value);
}
fx_schedule *fx_schedule_step(double start, double decay, int64_t size)
{
    return MAKE(Step, start, decay, (double)size);
}
fx_schedule *fx_schedule_exp(double start, double decay)
{
    return MAKE(Exp, start, decay);
}
fx_schedule *fx_schedule_inv(double start, double decay, double degree)
{
    return MAKE(Inv, start, decay, degree);
}
fx_schedule *fx_schedule_poly(double start, double degree, int64_t steps)
{
    return MAKE(Poly, start, degree, (double)steps);
}
fx_schedule *fx_schedule_cosine(double a, double b, int64_t period, bool restart)
{
    return MAKE(CosAnneal, BETWEEN(a, b), (double)period, restart);
}
fx_schedule *fx_schedule_triangle(double a, double b, int64_t period)
{
    return MAKE(Triangle, BETWEEN(a, b), (double)period);
}
fx_schedule *fx_schedule_triangle_half(double a, double b, int64_t period)
{
    return MAKE(TriangleDecay2, BETWEEN(a, b), (double)period);
}
fx_schedule *fx_schedule_triangle_exp(double a, double b, int64_t period, double decay)
{
    return MAKE(TriangleExp, BETWEEN(a, b), (double)period, decay);
}
fx_schedule *fx_schedule_sin(double a, double b, int64_t period)
{
    return MAKE(Sin, BETWEEN(a, b), (double)period);
}
fx_schedule *fx_schedule_sin_half(double a, double b, int64_t period)
{
    return MAKE(SinDecay2, BETWEEN(a, b), (double)period);
}
fx_schedule *fx_schedule_sin_exp(double a, double b, int64_t period, double decay)
{
    return MAKE(SinExp, BETWEEN(a, b), (double)period, decay);
}

fx_schedule *fx_schedule_warmup(double start, int64_t steps, fx_schedule *then)
{
    return make(KIND_Warmup, &(const fx_schedule){.v = {start, (double)steps},
                                                  .parts = {1, (void *[]){then}, NULL}});
}
fx_schedule *fx_schedule_loop(fx_schedule *part, int64_t period)
{
    return make(KIND_Loop,
                &(const fx_schedule){.v = {(double)period}, .parts = {1, (void *[]){part}, NULL}});
}

static fx_schedule *make_onecycle(const fx_schedule *init)
{
    const fx_type *type = &rows[KIND_OneCycle].type;
    const double share = init->v[4];
    if (share >= 0 && share <= 1)
        return make(KIND_OneCycle, init);
    fx_fail(FX_STATUS_ARGUMENT, type->name, "the share of the rise must be from 0 to 1, got %g",
            share);
    return fx_error_object(type);
}
fx_schedule *fx_schedule_onecycle(int64_t steps, double most, double start, double end,
                                  double share)
{
    return make_onecycle(&(const fx_schedule){.v = {(double)steps, most, start, end, share}});
}

static fx_schedule *of_part(int kind, fx_schedule *part, double number)
{
    return make(kind, &(const fx_schedule){.v = {number}, .parts = {1, (void *[]){part}, NULL}});
}
fx_schedule *fx_schedule_interpolator(fx_schedule *part, double rate)
{
    return of_part(KIND_Interpolator, part, rate);
}
fx_schedule *fx_schedule_shifted(fx_schedule *part, int64_t offset)
{
    return of_part(KIND_Shifted, part, (double)offset);
}

/* The fewest numbers that the notation accepts for a kind; the others have defaults. */
static int least_numbers(int kind)
{
    return kind == KIND_OneCycle ? 2 : rows[kind].numbers - (kind == KIND_CosAnneal);
}

/* Numbers that are NaN get their defaults. */
static void fill_defaults(int kind, double *v)
{
    const double cycle[NUMBERS] = {0, 0, v[1] / 25, v[1] / 1e5, 0.25};
    for (int i = least_numbers(kind); i < rows[kind].numbers; i++)
        if (isnan(v[i]))
            v[i] = kind == KIND_OneCycle ? cycle[i] : 1; /* cosines restart by default */
}

fx_schedule *fx_schedule_composed(fx_schedule *kind, int n, fx_schedule *const *numbers)
{
    const fx_type *type = &rows[KIND_ComposedSchedule].type;
    if (fxi_check_list(type->name, "numbers", n, numbers) != FX_OK)
        return fx_error_object(type);
    const struct row *r = row_of(kind);
    fx_schedule init = {.parts = {n + 1, (void * [1 + NUMBERS]){kind}, NULL}};
    if (r && r->numbers > 0 && kind->parts.n == 0 && n >= least_numbers((int)(r - rows)) &&
        n <= r->numbers) {
        for (int i = 0; i < n; i++)
            init.parts.items[i + 1] = numbers[i];
        return make(KIND_ComposedSchedule, &init);
    }
    if (!r)
        check_parts(&rows[KIND_ComposedSchedule],
                    &(const fx_schedule){.parts = {1, (void *[]){kind}, NULL}});
    else
        fx_fail(FX_STATUS_ARGUMENT, type->name, "%s does not take %d numbers", r->type.name, n);
    return fx_error_object(type);
}

static double composed(const fx_schedule *s, double k)
{
    const fx_schedule *like = s->parts.items[0];
    const struct row *r = row_of(like);
    fx_schedule now = {.steps = {.n = 0}};
    for (int i = 0; i < NUMBERS; i++)
        now.v[i] = i + 1 < s->parts.n ? part_at(s, i + 1, k) : (double)NAN;
    fill_defaults((int)(r - rows), now.v);
    return r->positive < 0 || now.v[r->positive] > 0 ? r->at(&now, k) : (double)NAN;
}

fx_schedule *fx_schedule_sequence(int n, fx_schedule *const *parts, const int64_t *steps)
{
    const fx_type *type = &rows[KIND_Sequence].type;
    fx_schedule init = {.parts = {n, (void **)(uintptr_t)parts, NULL}};
    if (n < 1 || n > MOST_PARTS) {
        fx_fail(FX_STATUS_ARGUMENT, type->name, "takes 1 to %d parts, got %d", MOST_PARTS, n);
        return fx_error_object(type);
    }
    if (fxi_check_list(type->name, "schedules", n, parts) != FX_OK ||
        fxi_check_list(type->name, "steps", n, steps) != FX_OK)
        return fx_error_object(type);
    init.steps.n = n;
    for (int i = 0; i < n; i++) {
        init.steps.v[i] = steps[i];
        if (steps[i] <= 0) {
            fx_fail(FX_STATUS_ARGUMENT, type->name,
                    "the number of steps must be positive, got %lld", (long long)steps[i]);
            return fx_error_object(type);
        }
    }
    return make(KIND_Sequence, &init);
}

int fxi_schedule_keyword(const char *name, const char *keyword)
{
    static const struct {
        const char *name, *keyword;
        int at;
    } all[] = {{"CosAnneal", "restart", 3},
               {"OneCycle", "startval", 2},
               {"OneCycle", "endval", 3},
               {"OneCycle", "percent_start", 4}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0 && strcmp(all[i].keyword, keyword) == 0)
            return all[i].at;
    return -1;
}

fx_schedule *fxi_schedule_named(const char *name, int n, const double *v, int *out_numbers)
{
    *out_numbers = -1;
    for (int i = 0; i < ALL_KINDS; i++) {
        fx_schedule init = {.steps = {.n = 0}};
        const bool of_parts = i == KIND_Warmup || i == KIND_Loop || i == KIND_Interpolator ||
                              i == KIND_Shifted || rows[i].numbers == 0;
        if (strcmp(rows[i].type.name, name) != 0 || of_parts)
            continue;
        *out_numbers = least_numbers(i);
        if (n < *out_numbers || n > rows[i].numbers)
            return NULL;
        for (int k = 0; k < NUMBERS; k++)
            init.v[k] = k < n ? v[k] : (double)NAN;
        fill_defaults(i, init.v);
        return i == KIND_OneCycle ? make_onecycle(&init) : make(i, &init);
    }
    return NULL;
}

fx_schedule *fxi_schedule_error(void)
{
    return fx_error_object(&rows[KIND_Constant].type);
}

/* ---- triggers -------------------------------------------------------------------------------- */

fx_trigger fx_patience(int64_t wait)
{
    return (fx_trigger){.wait = wait, .score = (double)INFINITY};
}
fx_trigger fx_early_stopping(int64_t wait, double least)
{
    return (fx_trigger){.wait = wait, .score = (double)INFINITY, .least = least};
}
fx_trigger fx_plateau(int64_t wait, double least)
{
    return fx_early_stopping(wait, least);
}

bool fx_patience_over(fx_trigger *t, bool condition)
{
    t->count = condition ? t->count + 1 : 0;
    return t->count >= t->wait;
}

bool fx_stop_early(fx_trigger *t, double score)
{
    const double gain = t->score - score;
    t->score = gain < 0 || isnan(gain) ? t->score : score;
    return fx_patience_over(t, !(gain >= t->least));
}

bool fx_on_plateau(fx_trigger *t, double score)
{
    const double change = fabs(t->score - score);
    t->score = score;
    return fx_patience_over(t, change < t->least);
}

fx_throttle fx_throttle_every(double seconds, bool leading)
{
    return (fx_throttle){.seconds = seconds, .leading = leading};
}

bool fx_throttle_pass(fx_throttle *t)
{
    const double now = fxi_clock();
    const bool first = t->next == 0, pass = first ? t->leading : now >= t->next;
    if (first || pass)
        t->next = now + t->seconds;
    return pass;
}
