/* schedule.c: learning-rate schedules as objects, and triggers: see cflux/schedule.h.
 *
 * A row of the table is a kind of schedule: its name in ParameterSchedulers.jl, the number of its
 * numbers, and its function of the step. Making, checking and printing are the same for all;
 * notation_schedule.c parses what is printed here.
 */
#include "schedules.h"

#include "clock.h"
#include "error.h"
#include "julia_number.h"

#include <math.h>
#include <string.h>

enum { NUMBERS = 4 };
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
static double step(const fx_schedule *s, double k)
{
    return s->v[0] * pow(s->v[1], floor(k / s->v[2]));
}
static double exponential(const fx_schedule *s, double k)
{
    return s->v[0] * pow(s->v[1], k);
}
static double inverse(const fx_schedule *s, double k)
{
    return s->v[0] / pow(1 + s->v[1] * k, s->v[2]);
}
static double polynomial(const fx_schedule *s, double k)
{
    return k < s->v[2] ? s->v[0] * pow(1 - k / s->v[2], s->v[1]) : 0;
}

/* m + |a − b|·part, of the first two numbers */
static double between(const fx_schedule *s, double part)
{
    return fabs(s->v[0] - s->v[1]) * part + fmin(s->v[0], s->v[1]);
}
static double cosine(const fx_schedule *s, double k)
{
    const double at = s->v[3] != 0 ? fmod(k, s->v[2]) : k;
    return between(s, (1 + cos(PI * at / s->v[2])) / 2);
}
static double triangle_of(const fx_schedule *s, double k)
{
    const double at = fmod(k, s->v[2]) / s->v[2];
    return at < 0.5 ? 2 * at : 2 - 2 * at;
}
static double sine_of(const fx_schedule *s, double k)
{
    return fabs(sin(PI * k / s->v[2]));
}
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
    return fx_schedule_at(s->parts.items[i], (int64_t)k);
}
static double warmup(const fx_schedule *s, double k)
{
    const double start = s->v[0], steps = s->v[1];
    if (k >= steps)
        return part_at(s, 0, k - steps);
    return start + (part_at(s, 0, 0) - start) * (k / steps);
}
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
    KIND(Loop, loop, 1, 0)
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
    fx_fail(FX_STATUS_ARGUMENT, "schedule_at", "the first argument is not a schedule");
    return (double)NAN;
}

static void describe(const void *self, fx_text *text)
{
    const fx_schedule *s = self;
    const struct row *r = row_of(s);
    char number[FXI_NUMBER_TEXT];
    fx_text_add(text, "%s(", fx_type_of(s)->name);
    for (int i = 0; r && i < r->numbers; i++) {
        const bool flag = r == &rows[KIND_CosAnneal] && i == 3;
        fx_text_add(text, "%s%s", i ? ", " : "",
                    !flag            ? fxi_float64_text(s->v[i], number)
                    : s->v[i] != 0.0 ? "true"
                                     : "false");
    }
    for (int64_t i = 0; i < s->parts.n; i++) {
        fx_text_add(text, i || r->numbers ? ", " : "");
        describe(s->parts.items[i], text);
        if (s->steps.n > i)
            fx_text_add(text, " => %lld", (long long)s->steps.v[i]);
    }
    fx_text_add(text, ")");
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
                fx_fail(FX_STATUS_ARGUMENT, r->type.name, "expects schedules");
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
        if (!ok)
            fx_fail(FX_STATUS_ARGUMENT, r->type.name,
                    i == r->positive ? "the number of steps must be positive, got %g"
                                     : "expects finite numbers, got %g",
                    init->v[i]);
    }
    return ok ? fxi_new(&r->type, init) : fx_error_object(&r->type);
}

#define MAKE(kind, ...) make(KIND_##kind, &(const fx_schedule){.v = {__VA_ARGS__}})
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
    return MAKE(CosAnneal, a, b, (double)period, restart);
}
fx_schedule *fx_schedule_triangle(double a, double b, int64_t period)
{
    return MAKE(Triangle, a, b, (double)period);
}
fx_schedule *fx_schedule_triangle_half(double a, double b, int64_t period)
{
    return MAKE(TriangleDecay2, a, b, (double)period);
}
fx_schedule *fx_schedule_triangle_exp(double a, double b, int64_t period, double decay)
{
    return MAKE(TriangleExp, a, b, (double)period, decay);
}
fx_schedule *fx_schedule_sin(double a, double b, int64_t period)
{
    return MAKE(Sin, a, b, (double)period);
}
fx_schedule *fx_schedule_sin_half(double a, double b, int64_t period)
{
    return MAKE(SinDecay2, a, b, (double)period);
}
fx_schedule *fx_schedule_sin_exp(double a, double b, int64_t period, double decay)
{
    return MAKE(SinExp, a, b, (double)period, decay);
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

fx_schedule *fx_schedule_sequence(int n, fx_schedule *const *parts, const int64_t *steps)
{
    const fx_type *type = &rows[KIND_Sequence].type;
    fx_schedule init = {.parts = {n, (void **)(uintptr_t)parts, NULL}};
    if (n < 1 || n > MOST_PARTS) {
        fx_fail(FX_STATUS_ARGUMENT, type->name, "has 1 to %d parts, got %d", MOST_PARTS, n);
        return fx_error_object(type);
    }
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

fx_schedule *fxi_schedule_named(const char *name, int n, const double *v, int *out_numbers)
{
    for (int i = 0; i < ALL_KINDS; i++) {
        fx_schedule init = {.steps = {.n = 0}};
        const bool found = strcmp(rows[i].type.name, name) == 0;
        const int optional = i == KIND_CosAnneal;
        if (!found || i == KIND_Warmup || i == KIND_Sequence || i == KIND_Loop)
            continue;
        *out_numbers = rows[i].numbers - optional;
        if (n < *out_numbers || n > rows[i].numbers)
            return NULL;
        init.v[NUMBERS - 1] = optional; /* cosines restart by default */
        memcpy(init.v, v, (size_t)n * sizeof *v);
        return make(i, &init);
    }
    *out_numbers = -1;
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
