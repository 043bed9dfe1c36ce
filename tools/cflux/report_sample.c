/* report_sample.c: see report_sample.h. A sample that is not as docs/log.md says is passed by. */
#include "report_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES_MOST = 24, NUMBERS_MOST = 16, PIXELS_MOST = 4096, SIDE_MOST = 65536 };

/* The numbers of an array, or of one number; what is none is NaN. NULL without memory. */
static double *numbers_of(const cJSON *item, size_t *out_n)
{
    const size_t n = cJSON_IsArray(item) ? (size_t)cJSON_GetArraySize(item) : item ? 1 : 0;
    double *numbers = malloc((n + 1) * sizeof *numbers);
    const cJSON *each = cJSON_IsArray(item) ? item->child : item;
    *out_n = n;
    for (size_t i = 0; numbers && i < n; i++, each = each->next)
        numbers[i] = cJSON_IsNumber(each) && isfinite(each->valuedouble) ? each->valuedouble : NAN;
    return numbers;
}

/* ---- images ---------------------------------------------------------------------------------- */

typedef struct picture {
    size_t width, height, channels;
} picture;

/* Is it (width, height) or (width, height, channels), with as many numbers? */
static bool is_picture(const double *shape, size_t rank, size_t n, picture *out)
{
    if (rank != 2 && rank != 3)
        return false;
    for (size_t d = 0; d < rank; d++)
        if (!(shape[d] >= 1 && shape[d] <= SIDE_MOST && shape[d] == floor(shape[d])))
            return false;
    *out = (picture){(size_t)shape[0], (size_t)shape[1], rank == 3 ? (size_t)shape[2] : 1};
    return out->width > 1 && out->height > 1 && (out->channels == 1 || out->channels == 3) &&
           out->width * out->height * out->channels == n;
}

/* The mean of a square of pixels of one channel; the image may end within the square. */
static double mean_of_square(const double *x, const picture *p, size_t column, size_t row,
                             size_t side)
{
    double sum = 0, count = 0;
    for (size_t r = row; r < row + side && r < p->height; r++)
        for (size_t c = column; c < column + side && c < p->width; c++) {
            const double pixel = x[r * p->width + c];
            sum += isnan(pixel) ? 0 : pixel;
            count += !isnan(pixel);
        }
    return count > 0 ? sum / count : NAN;
}

/* The image with every square of side×side pixels as one; `out` may be `x`. */
static picture shrink(const double *x, const picture *p, size_t side, double *out)
{
    const picture small = {(p->width + side - 1) / side, (p->height + side - 1) / side,
                           p->channels};
    for (size_t k = 0; k < p->channels; k++)
        for (size_t row = 0; row < small.height; row++)
            for (size_t column = 0; column < small.width; column++)
                *out++ = mean_of_square(x + k * p->width * p->height, p, column * side, row * side,
                                        side);
    return small;
}

static void write_base64(json_out *j, const char *key, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4 * ((PIXELS_MOST + 2) / 3) + 1], *to = text;
    for (size_t i = 0; i < n; i += 3) {
        unsigned long three = 0;
        for (size_t k = 0; k < 3; k++)
            three = three << 8 | (i + k < n ? bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *to++ = i + k <= n ? digits[three >> (18 - 6 * k) & 63] : '=';
    }
    *to = '\0';
    json_text(j, key, text);
}

/* The least number becomes 0, the greatest 255: inputs are often normalised. */
static void write_picture(json_out *j, double *x, picture p)
{
    size_t side = 1;
    while (((p.width + side - 1) / side) * ((p.height + side - 1) / side) * p.channels >
           PIXELS_MOST)
        side++;
    p = shrink(x, &p, side, x);
    unsigned char bytes[PIXELS_MOST];
    const size_t n = p.width * p.height * p.channels;
    double least = INFINITY, greatest = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, x[i]);
        greatest = fmax(greatest, x[i]);
    }
    const double scale = greatest > least ? 255 / (greatest - least) : 0;
    for (size_t i = 0; i < n; i++)
        bytes[i] = isnan(x[i]) ? 0 : (unsigned char)((x[i] - least) * scale + 0.5);
    json_integer(j, "width", (int64_t)p.width);
    json_integer(j, "height", (int64_t)p.height);
    json_integer(j, "channels", (int64_t)p.channels);
    write_base64(j, "pixels", bytes, n);
}

/* ---- numbers and classes --------------------------------------------------------------------- */

static void write_numbers(json_out *j, const char *key, const double *x, size_t n)
{
    json_open(j, key, '[');
    for (size_t i = 0; i < n && i < NUMBERS_MOST; i++)
        json_rounded(j, NULL, x[i], 4);
    json_close(j);
}

static void write_class(json_out *j, const char *key, const cJSON *classes, size_t index)
{
    json_text(j, key, cJSON_GetStringValue(cJSON_GetArrayItem(classes, (int)index)));
}

enum { INPUT, SHAPE, TARGET, OUTPUT, SCORES, GUESS, PARTS };

static size_t largest_of(const double *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++)
        best = isnan(x[best]) || x[i] > x[best] ? i : best;
    return best;
}

static void write_choice(json_out *j, const cJSON *classes, size_t target, size_t guess)
{
    write_class(j, "target", classes, target);
    write_class(j, "guess", classes, guess);
    json_flag(j, "right", guess == target);
}

static bool is_class(const double *x, size_t n, size_t nclasses)
{
    return n == 1 && x[0] >= 0 && x[0] < (double)nclasses;
}

/* A target that is the number of a class and, for each class, a probability; or scores, one for
 * each or of the second of two, with the class that they choose. */
static bool write_guess(json_out *j, const cJSON *classes, double *const x[PARTS],
                        const size_t n[PARTS])
{
    const size_t nclasses = (size_t)cJSON_GetArraySize(classes);
    if (nclasses < 2 || !is_class(x[TARGET], n[TARGET], nclasses))
        return false;
    if (n[OUTPUT] == nclasses) {
        const size_t guess = largest_of(x[OUTPUT], nclasses);
        write_choice(j, classes, (size_t)x[TARGET][0], guess);
        json_rounded(j, "chance", x[OUTPUT][guess], 4);
        return true;
    }
    if (!is_class(x[GUESS], n[GUESS], nclasses) || (n[SCORES] != 1 && n[SCORES] != nclasses))
        return false;
    const size_t guess = (size_t)x[GUESS][0];
    write_choice(j, classes, (size_t)x[TARGET][0], guess);
    json_rounded(j, "score", x[SCORES][n[SCORES] == 1 ? 0 : guess], 4);
    return true;
}

static bool write_sample(json_out *j, const cJSON *sample, const cJSON *classes)
{
    static const char *const names[] = {"input", "shape", "target", "output", "scores", "guess"};
    double *x[PARTS];
    size_t n[PARTS];
    bool good = true;
    for (int i = 0; i < PARTS; i++) {
        x[i] = numbers_of(cJSON_GetObjectItemCaseSensitive(sample, names[i]), &n[i]);
        good = good && x[i];
    }
    picture p;
    if (good) {
        json_open(j, NULL, '{');
        if (is_picture(x[SHAPE], n[SHAPE], n[INPUT], &p))
            write_picture(j, x[INPUT], p);
        else
            write_numbers(j, "input", x[INPUT], n[INPUT]);
        json_integer(j, "length", (int64_t)n[INPUT]);
        if (!write_guess(j, classes, x, n)) {
            const int said = n[OUTPUT] > 0 ? OUTPUT : SCORES;
            write_numbers(j, "target", x[TARGET], n[TARGET]);
            write_numbers(j, "guess", x[said], n[said]);
        }
        json_close(j);
    }
    for (int i = 0; i < PARTS; i++)
        free(x[i]);
    return good;
}

bool report_samples(json_out *j, const cJSON *end, const cJSON *classes)
{
    const cJSON *samples = cJSON_GetObjectItemCaseSensitive(end, "samples");
    int left = SAMPLES_MOST;
    for (const cJSON *s = cJSON_IsArray(samples) ? samples->child : NULL; s && left-- > 0;
         s = s->next)
        if (cJSON_IsObject(s) && !write_sample(j, s, classes))
            return false;
    return true;
}
