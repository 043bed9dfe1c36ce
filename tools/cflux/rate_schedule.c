/* rate_schedule.c: see rate_schedule.h. */
#include "rate_schedule.h"
#include "failure.h"
#include <stdlib.h>
#include <string.h>

static fx_schedule *cosine(double rate, int64_t steps)
{
    return fx_schedule_cosine(rate, 0, steps, false);
}

static fx_schedule *linear(double rate, int64_t steps)
{
    return fx_schedule_poly(rate, 1, steps);
}

static const struct short_form {
    const char *name;
    fx_schedule *(*make)(double rate, int64_t steps);
} forms[] = {{"cosine", cosine}, {"linear", linear}};

/* The short form with which the text begins, NULL if it is notation. */
static const struct short_form *form_of(const char *text)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const size_t n = strlen(forms[i].name);
        if (strncmp(text, forms[i].name, n) == 0 && (text[n] == 0 || text[n] == ':'))
            return &forms[i];
    }
    return NULL;
}

/* The number in ":warmup=500", 0 without it; −1 for any other end. */
static int64_t warmup_of(const char *end)
{
    static const char option[] = ":warmup=";
    char *stop;
    if (!*end)
        return 0;
    if (strncmp(end, option, sizeof option - 1) != 0)
        return -1;
    const long long n = strtoll(end + sizeof option - 1, &stop, 10);
    return stop > end + sizeof option - 1 && !*stop && n > 0 ? n : -1;
}

int rate_schedule_check(const char *text)
{
    const struct short_form *form = form_of(text);
    if (!form) {
        fx_parse_schedule(text);
        return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_BAD_INPUT);
    }
    return warmup_of(text + strlen(form->name)) >= 0
               ? EXIT_FINE
               : fail(EXIT_BAD_INPUT,
                      "--schedule takes %s, %s:warmup=500 or a schedule such as "
                      "'CosAnneal(0.01, 0, 10)', got \"%s\"",
                      form->name, form->name, text);
}

int rate_schedule_make(const char *text, double rate, int64_t steps, fx_schedule **out,
                       bool *per_step)
{
    const struct short_form *form = form_of(text);
    const int64_t warmup = form ? warmup_of(text + strlen(form->name)) : 0;
    if (form && warmup >= steps)
        return fail(EXIT_BAD_INPUT,
                    "--schedule %s: the run has only %lld training step%s, in all epochs", text,
                    (long long)steps, steps == 1 ? "" : "s");
    *per_step |= form != NULL;
    *out = form ? form->make(rate, steps - warmup) : fx_parse_schedule(text);
    if (warmup > 0)
        *out = fx_schedule_warmup(0, warmup, *out);
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_BAD_INPUT);
}
