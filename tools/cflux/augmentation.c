/* augmentation.c: see augmentation.h. */
#include "augmentation.h"
#include "dataset.h"
#include "failure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHIFT_AT_MOST = 1 << 20 };

static bool is_word(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && strncmp(text, word, n) == 0;
}

/* Reads the number above 0 after `name`, such as "shift=". Nothing else may be in the n
 * characters. */
static bool read_number(const char *text, size_t n, const char *name, double *out)
{
    const size_t skip = strlen(name);
    char *end;
    if (n <= skip || strncmp(text, name, skip) != 0)
        return false;
    *out = strtod(text + skip, &end);
    return end == text + n && isfinite(*out) && *out > 0;
}

int augmentation_parse(const char *text, augmentation *out)
{
    *out = (augmentation){.flip = false};
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t n = strcspn(at, ",");
        double shift = 0;
        if (is_word(at, n, "flip"))
            out->flip = true;
        else if (read_number(at, n, "shift=", &shift) && shift == floor(shift) &&
                 shift <= SHIFT_AT_MOST)
            out->shift = (int64_t)shift;
        else if (!read_number(at, n, "noise=", &out->noise))
            return fail(EXIT_BAD_INPUT,
                        "--augment takes flip, shift=PIXELS and noise=DEVIATION, separated by "
                        "commas, got \"%.*s\"",
                        (int)n, at);
    }
    return EXIT_FINE;
}

static bool changes(const augmentation *a)
{
    return a->flip || a->shift > 0 || a->noise > 0;
}

int augmentation_check(const augmentation *a, const char *data, const fx_array *x)
{
    char sizes[100];
    if (!changes(a) || fx_ndims(x) == 4)
        return EXIT_FINE;
    describe_sizes(x, true, sizes, sizeof sizes);
    return fail(
        EXIT_BAD_INPUT,
        "--augment changes images, but an observation of %s has size %s: give width, height "
        "and channels with --shape",
        data, sizes);
}

fx_array *augmented(const augmentation *a, fx_array *x)
{
    if (a->flip)
        x = fx_random_flip(x);
    if (a->shift > 0)
        x = fx_random_shift(x, FX_DIMS(a->shift));
    return a->noise > 0 ? fx_random_noise(x, .std = a->noise) : x;
}
