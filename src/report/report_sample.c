/* report_sample.c: writes the sample predictions of a report: see report_sample.h. A sample that
 * does not follow docs/log.md is skipped. */
#include "report_sample.h"
#include "memory.h"

#include <math.h>

enum { SAMPLES_MOST = 32, NUMBERS_MOST = 16, PIXELS_MOST = 4096, SIDE_MOST = 65536 };

/* The numbers of an array, or a single number; other values become NaN. NULL if out of memory. */
static double *numbers_of(const fxi_json *item, size_t *out_n)
{
    const size_t n = fxi_json_is(item, FXI_JSON_LIST) ? fxi_json_length(item) : item ? 1 : 0;
    double *numbers = fxi_malloc((n + 1) * sizeof *numbers);
    const fxi_json *each = fxi_json_is(item, FXI_JSON_LIST) ? item->child : item;
    *out_n = n;
    for (size_t i = 0; numbers && i < n; i++, each = each->next)
        numbers[i] =
            fxi_json_is(each, FXI_JSON_NUMBER) && isfinite(each->number) ? each->number : NAN;
    return numbers;
}

/* ---- images ---------------------------------------------------------------------------------- */

typedef struct picture {
    size_t width, height, channels;
} picture;

/* True if the n numbers are an image of this shape, (width, height) or (width, height, channels),
 * with several rows and columns and 1 or 3 channels. */
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

/* The mean over a square of pixels of one channel. At the edges the square may extend beyond the
 * image. */
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

/* Shrinks the image: each square of side×side pixels becomes one pixel. `out` may be `x`. */
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

static void write_base64(fx_json *j, const char *key, const unsigned char *bytes, size_t n)
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
    fx_json_text(j, key, text);
}

/* Scales least … greatest to 0 … 255, because inputs are often normalised; 0 for NaN and where all
 * pixels are equal. The differences of large numbers overflow unless these are halved first. */
static unsigned char grey(double x, double least, double greatest)
{
    const double at = (x / 2 - least / 2) / (greatest / 2 - least / 2);
    return at >= 0 && at <= 1 ? (unsigned char)(255 * at + 0.5) : 0;
}

static void write_picture(fx_json *j, double *x, picture p)
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
    for (size_t i = 0; i < n; i++)
        bytes[i] = grey(x[i], least, greatest);
    fx_json_integer(j, "width", (int64_t)p.width);
    fx_json_integer(j, "height", (int64_t)p.height);
    fx_json_integer(j, "channels", (int64_t)p.channels);
    write_base64(j, "pixels", bytes, n);
}

/* ---- numbers and classes --------------------------------------------------------------------- */

static void write_numbers(fx_json *j, const char *key, const double *x, size_t n)
{
    fx_json_open(j, key, '[');
    for (size_t i = 0; i < n && i < NUMBERS_MOST; i++)
        fx_json_rounded(j, NULL, x[i], 4);
    fx_json_close(j);
}

static void write_class(fx_json *j, const char *key, const fxi_json *classes, size_t index)
{
    fx_json_text(j, key, fxi_json_text_of(fxi_json_item(classes, index)));
}

enum { INPUT, SHAPE, TARGET, OUTPUT, SCORES, GUESS, PARTS };

static size_t largest_of(const double *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++)
        best = isnan(x[best]) || x[i] > x[best] ? i : best;
    return best;
}

static void write_choice(fx_json *j, const fxi_json *classes, size_t target, size_t guess)
{
    write_class(j, "target", classes, target);
    write_class(j, "guess", classes, guess);
    fx_json_flag(j, "right", guess == target);
}

static bool is_class(const double *x, size_t n, size_t nclasses)
{
    return n == 1 && x[0] >= 0 && x[0] < (double)nclasses;
}

/* Writes the target class and the guess. With one output per class the guess is the class of the
 * largest output, and "chance" is that output. Otherwise the log names the guess, and "score" is
 * its score, or the only score. False if the sample has neither. */
static bool write_guess(fx_json *j, const fxi_json *classes, double *const x[PARTS],
                        const size_t n[PARTS])
{
    const size_t nclasses = fxi_json_length(classes);
    if (nclasses < 2 || !is_class(x[TARGET], n[TARGET], nclasses))
        return false;
    if (n[OUTPUT] == nclasses) {
        const size_t guess = largest_of(x[OUTPUT], nclasses);
        write_choice(j, classes, (size_t)x[TARGET][0], guess);
        fx_json_rounded(j, "chance", x[OUTPUT][guess], 4);
        return true;
    }
    if (!is_class(x[GUESS], n[GUESS], nclasses) || (n[SCORES] != 1 && n[SCORES] != nclasses))
        return false;
    const size_t guess = (size_t)x[GUESS][0];
    write_choice(j, classes, (size_t)x[TARGET][0], guess);
    fx_json_rounded(j, "score", x[SCORES][n[SCORES] == 1 ? 0 : guess], 4);
    return true;
}

static bool write_sample(fx_json *j, const fxi_json *sample, const fxi_json *classes)
{
    static const char *const names[] = {"input", "shape", "target", "output", "scores", "guess"};
    double *x[PARTS];
    size_t n[PARTS];
    bool good = true;
    for (int i = 0; i < PARTS; i++) {
        x[i] = numbers_of(fxi_json_member(sample, names[i]), &n[i]);
        good = good && x[i];
    }
    picture p;
    const fxi_json *worst = fxi_json_member(sample, "worst");
    if (good) {
        fx_json_open(j, NULL, '{');
        if (is_picture(x[SHAPE], n[SHAPE], n[INPUT], &p))
            write_picture(j, x[INPUT], p);
        else
            write_numbers(j, "input", x[INPUT], n[INPUT]);
        fx_json_integer(j, "length", (int64_t)n[INPUT]);
        if (!write_guess(j, classes, x, n)) {
            const int said = n[OUTPUT] > 0 ? OUTPUT : SCORES;
            write_numbers(j, "target", x[TARGET], n[TARGET]);
            write_numbers(j, "guess", x[said], n[said]);
        }
        if (fxi_json_is(worst, FXI_JSON_FLAG) && worst->flag)
            fx_json_flag(j, "worst", true);
        fx_json_close(j);
    }
    for (int i = 0; i < PARTS; i++)
        fxi_free(x[i]);
    return good;
}

bool fxi_report_samples(fx_json *j, const fxi_json *end, const fxi_json *classes)
{
    const fxi_json *samples = fxi_json_member(end, "samples");
    int left = SAMPLES_MOST;
    for (const fxi_json *s = fxi_json_is(samples, FXI_JSON_LIST) ? samples->child : NULL;
         s && left-- > 0; s = s->next)
        if (fxi_json_is(s, FXI_JSON_OBJECT) && !write_sample(j, s, classes))
            return false;
    return true;
}
