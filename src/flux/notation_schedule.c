/* notation_schedule.c: parses schedules: Step(0.1, 0.5, 10), CosAnneal(1e-3, 0, 45),
 * Sequence(Exp(0.1, 0.9) => 10, Constant(0.01) => 5), Warmup(0, 5, CosAnneal(1e-3, 0, 45)),
 * Loop(Exp(0.1, 0.9), 7), Shifted(Exp(0.1, 0.9), 5), ComposedSchedule(Exp(0, 0), (0.1, Step(1, 0.5,
 * 10))). */
#include "notation_reader.h"
#include "schedules.h"

#include <cflux/notation.h>

#include <math.h>
#include <string.h>

enum { MOST_DEPTH = 16, MOST_PARTS = 16, MOST_NUMBERS = 5 };
static const char KNOWN[] =
    "Constant, Step, Exp, Inv, Poly, CosAnneal, Triangle, TriangleDecay2, "
    "TriangleExp, Sin, SinDecay2, SinExp, OneCycle, Warmup, Sequence, Loop, "
    "Interpolator, Shifted, ComposedSchedule";

static fx_schedule *take_schedule(fxi_reader *r);

static fx_schedule *unexpected(fxi_reader *r, const char *what)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_reader_peek(r);
    fxi_reader_fail(r, r->at, "expected %s, got %s", what, fxi_reader_got(r, r->at, buf));
    return NULL;
}

static fx_schedule *made(fxi_reader *r, fx_schedule *s, const char *start)
{
    return s && (!fx_is_error(s) || fxi_reader_passed_on(r, start)) ? s : NULL;
}

static bool take_number(fxi_reader *r, double *out)
{
    fxi_number n;
    fxi_span word;
    if (fxi_reader_number(r, &n)) {
        *out = n.value;
        return true;
    }
    const char *before = r->at;
    if (r->status == FX_OK && fxi_reader_name(r, &word)) {
        *out = fxi_span_is(word, "true");
        if (*out != 0 || fxi_span_is(word, "false"))
            return true;
        r->at = before;
    }
    unexpected(r, "a number");
    return false;
}

/* A whole number of steps. */
static bool take_steps(fxi_reader *r, int64_t *out)
{
    fxi_number n;
    if (!fxi_reader_number(r, &n) || !(fabs(n.value) < 0x1p53) || n.value != trunc(n.value)) {
        unexpected(r, "a number of steps");
        return false;
    }
    *out = (int64_t)n.value;
    return true;
}

static bool take(fxi_reader *r, char c, const char *what)
{
    if (fxi_reader_take(r, c))
        return true;
    unexpected(r, what);
    return false;
}

/* The position of the next number: n, or that of its keyword. −1: an error (recorded). */
static int position(fxi_reader *r, fxi_span name, const char *text, int n)
{
    fxi_span keyword;
    char word[24];
    if (!fxi_reader_keyword(r, &keyword))
        return n;
    snprintf(word, sizeof word, "%.*s", fxi_span_width(keyword), keyword.from);
    const int at = fxi_schedule_keyword(text, word);
    if (at < 0)
        fxi_reader_fail(r, keyword.from, "%.*s takes numbers in order, without names",
                        fxi_span_width(name), name.from);
    return at;
}

static fx_schedule *take_numbers(fxi_reader *r, fxi_span name)
{
    double v[MOST_NUMBERS + 1]; /* the last one gets every further number: no schedule takes it */
    char text[24];
    int n = 0, takes;
    for (int i = 0; i <= MOST_NUMBERS; i++)
        v[i] = (double)NAN;
    snprintf(text, sizeof text, "%.*s", fxi_span_width(name), name.from);
    for (bool first = true; fxi_reader_next_item(r, first, ')'); first = false) {
        const int at = position(r, name, text, n);
        if (at < 0 || !take_number(r, &v[at < MOST_NUMBERS ? at : MOST_NUMBERS]))
            return NULL;
        n = at >= n ? at + 1 : n;
    }
    if (r->status != FX_OK)
        return NULL;
    fx_schedule *s = fxi_schedule_named(text, n, v, &takes);
    if (!s && takes < 0)
        fxi_reader_fail(r, name.from, "unknown schedule %.*s; known are %s", fxi_span_width(name),
                        name.from, KNOWN);
    else if (!s)
        fxi_reader_fail(r, name.from, "%s takes %d numbers, got %d", text, takes, n);
    return made(r, s, name.from);
}

/* start, steps, schedule */
static fx_schedule *take_warmup(fxi_reader *r, const char *start)
{
    double from;
    int64_t steps;
    if (!take_number(r, &from) || !take(r, ',', ",") || !take_steps(r, &steps) ||
        !take(r, ',', ","))
        return NULL;
    fx_schedule *then = take_schedule(r);
    return then && take(r, ')', ")") ? made(r, fx_schedule_warmup(from, steps, then), start) : NULL;
}

/* "schedule, period", or "period, schedule", as earlier versions wrote it */
static fx_schedule *take_loop(fxi_reader *r, const char *start)
{
    const char c = fxi_reader_peek(r);
    const bool number_first = (c >= '0' && c <= '9') || c == '-';
    int64_t period = 0;
    if (number_first && (!take_steps(r, &period) || !take(r, ',', ",")))
        return NULL;
    fx_schedule *part = take_schedule(r);
    if (!part || (!number_first && (!take(r, ',', ",") || !take_steps(r, &period))) ||
        !take(r, ')', ")"))
        return NULL;
    return made(r, fx_schedule_loop(part, period), start);
}

/* "schedule, offset" of Shifted, "schedule, rate" of Interpolator */
static fx_schedule *take_changed(fxi_reader *r, const char *start, bool shifted)
{
    int64_t offset = 0;
    double rate = 0;
    fx_schedule *part = take_schedule(r);
    if (!part || !take(r, ',', ",") ||
        !(shifted ? take_steps(r, &offset) : take_number(r, &rate)) || !take(r, ')', ")"))
        return NULL;
    return made(r,
                shifted ? fx_schedule_shifted(part, offset) : fx_schedule_interpolator(part, rate),
                start);
}

static fx_schedule *take_shifted(fxi_reader *r, const char *start)
{
    return take_changed(r, start, true);
}

static fx_schedule *take_interpolator(fxi_reader *r, const char *start)
{
    return take_changed(r, start, false);
}

/* A schedule, or a number, which is constant. */
static fx_schedule *take_part(fxi_reader *r)
{
    fxi_number n;
    const char *start = r->at;
    return fxi_reader_number(r, &n) ? made(r, fx_schedule_constant(n.value), start)
                                    : take_schedule(r);
}

/* schedule, (number or schedule, …) */
static fx_schedule *take_composed(fxi_reader *r, const char *start)
{
    fx_schedule *parts[MOST_NUMBERS];
    int n = 0;
    fx_schedule *kind = take_schedule(r);
    if (!kind || !take(r, ',', ",") || !take(r, '(', "("))
        return NULL;
    for (bool first = true; fxi_reader_next_item(r, first, ')'); first = false) {
        if (n == MOST_NUMBERS)
            return unexpected(r, "at most 5 numbers");
        parts[n] = take_part(r);
        if (!parts[n++])
            return NULL;
    }
    return r->status == FX_OK && take(r, ')', ")")
               ? made(r, fx_schedule_composed(kind, n, parts), start)
               : NULL;
}

/* schedule => steps, … */
static fx_schedule *take_sequence(fxi_reader *r, const char *start)
{
    fx_schedule *parts[MOST_PARTS];
    int64_t steps[MOST_PARTS];
    int n = 0;
    for (bool first = true; fxi_reader_next_item(r, first, ')'); first = false) {
        if (n == MOST_PARTS)
            return unexpected(r, "at most 16 parts");
        parts[n] = take_schedule(r);
        if (!parts[n] || !take(r, '=', "=>") || !take(r, '>', "=>") || !take_steps(r, &steps[n]))
            return NULL;
        n++;
    }
    return r->status == FX_OK ? made(r, fx_schedule_sequence(n, parts, steps), start) : NULL;
}

static fx_schedule *take_named(fxi_reader *r, fxi_span name)
{
    static const struct {
        const char *name;
        fx_schedule *(*take)(fxi_reader *r, const char *start);
    } of_parts[] = {{"Warmup", take_warmup},     {"Loop", take_loop},
                    {"Sequence", take_sequence}, {"Interpolator", take_interpolator},
                    {"Shifted", take_shifted},   {"ComposedSchedule", take_composed}};
    for (size_t i = 0; i < sizeof of_parts / sizeof of_parts[0]; i++)
        if (fxi_span_is(name, of_parts[i].name))
            return of_parts[i].take(r, name.from);
    return take_numbers(r, name);
}

static fx_schedule *take_schedule(fxi_reader *r)
{
    fxi_span name;
    fx_schedule *s = NULL;
    if (r->depth == MOST_DEPTH) {
        fxi_reader_fail(r, r->at, "nested deeper than %d", MOST_DEPTH);
        return NULL;
    }
    r->depth++;
    if (!fxi_reader_name(r, &name) || !fxi_reader_take(r, '('))
        unexpected(r, "a schedule such as Step(0.1, 0.5, 10)");
    else
        s = take_named(r, name);
    r->depth--;
    return s;
}

fx_schedule *fx_parse_schedule(const char *text)
{
    FXI_SCOPE;
    fxi_reader r;
    fx_schedule *s = fxi_reader_begin(&r, "schedule", text) ? take_schedule(&r) : NULL;
    return fxi_reader_end(&r) ? fx_keep(s) : fxi_schedule_error();
}
