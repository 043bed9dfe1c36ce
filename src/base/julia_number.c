/* julia_number.c: formats numbers as Julia prints them: base/ryu of Julia 1.10 (show of IEEEFloat),
 * in C.
 *
 * A floating-point number gets the fewest digits that read back as the same number; inside a matrix
 * it is rounded to six. It has no exponent for 1e-4 ≤ |x| < 1e6 (Float16: 1e3). Float32 writes its
 * exponent with f, and f0 after a number that is printed alone.
 *
 * The search tries 1, 2, 3 … digits. That is slow and simple; a screen shows a few hundred numbers
 * at most. At a power of two the gap below is half the gap above. There the nearest decimal may
 * read back as another number, while the next higher decimal reads back as the right one. So the
 * search tries both.
 */
#include "julia_number.h"
#include "c_text.h"
#include "half.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 17, COMPACT_DIGITS = 6 };

/* 0.d₁d₂… × 10^point */
typedef struct decimal {
    char digits[MAX_DIGITS + 1];
    int count, point;
} decimal;

typedef struct float_kind {
    int digits;   /* digits that are always enough */
    int plain;    /* the largest `point` that is written without an exponent */
    char expchar; /* the letter between number and exponent */
    const char *before, *after, *after_plain; /* texts around a number that is printed alone */
    const char *inf, *nan, *inf_alone, *nan_alone;
} float_kind;

static const float_kind kinds[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = {9, 6, 'f', "", "", "f0", "Inf", "NaN", "Inf32", "NaN32"},
    [FX_DTYPE_F64] = {17, 6, 'e', "", "", "", "Inf", "NaN", "Inf", "NaN"},
    [FX_DTYPE_F16] = {5, 3, 'e', "Float16(", ")", "", "Inf", "NaN", "Inf16", "NaN16"},
    [FX_DTYPE_BF16] = {9, 6, 'f', "BFloat16(", ")", "", "InfB16", "NaNB16", "InfB16", "NaNB16"},
};

/* ---- digits ---------------------------------------------------------------------------------- */

static void round_to(double x, int count, decimal *d)
{
    char buf[40];
    fxi_snprintf(buf, sizeof buf, "%.*e", count - 1, x);
    const char *e = strchr(buf, 'e');
    d->count = 0;
    for (const char *p = buf; p < e; p++)
        if (*p >= '0' && *p <= '9')
            d->digits[d->count++] = *p;
    d->digits[d->count] = 0;
    d->point = (int)strtol(e + 1, NULL, 10) + 1;
}

static void next_up(decimal *d)
{
    int i = d->count - 1;
    for (; i >= 0 && d->digits[i] == '9'; i--)
        d->digits[i] = '0';
    if (i >= 0) {
        d->digits[i]++;
        return;
    }
    d->digits[0] = '1'; /* 99 → 100 */
    d->point++;
}

static bool reads_back(const decimal *d, fx_dtype dtype, double x)
{
    char buf[40];
    snprintf(buf, sizeof buf, "%se%d", d->digits, d->point - d->count);
    if (dtype == FX_DTYPE_F64)
        return strtod(buf, NULL) == x;
    const float f = strtof(buf, NULL);
    return (double)(dtype == FX_DTYPE_F16 ? fxi_f16_to_f32(fxi_f32_to_f16(f)) : f) == x;
}

static void trim(decimal *d)
{
    while (d->count > 1 && d->digits[d->count - 1] == '0')
        d->digits[--d->count] = 0;
}

/* x > 0 and finite. */
static void find_digits(fx_dtype dtype, double x, bool compact, decimal *d)
{
    int exponent;
    const bool power_of_two = frexp(x, &exponent) == 0.5;
    const int most = kinds[dtype].digits;
    const int limit = compact && most > COMPACT_DIGITS ? COMPACT_DIGITS : most;
    for (int count = 1; count <= limit; count++) {
        round_to(x, count, d);
        if (reads_back(d, dtype, x))
            break;
        decimal up = *d;
        next_up(&up);
        if (power_of_two && reads_back(&up, dtype, x)) {
            *d = up;
            break;
        }
    }
    trim(d);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static bool is_plain(const decimal *d, const float_kind *k)
{
    return -4 < d->point && d->point <= k->plain;
}

static char *zeros(char *p, int n)
{
    for (; n > 0; n--)
        *p++ = '0';
    return p;
}

static char *lay_out(char *p, const decimal *d, const float_kind *k)
{
    const bool plain = is_plain(d, k);
    const int point = plain ? d->point : 1;
    if (point <= 0) {
        *p++ = '0';
        *p++ = '.';
        p = zeros(p, -point);
    }
    for (int i = 0; i < d->count; i++) {
        if (i == point && point > 0)
            *p++ = '.';
        *p++ = d->digits[i];
    }
    if (point >= d->count) {
        p = zeros(p, point - d->count);
        *p++ = '.';
        *p++ = '0';
    }
    return plain ? p : p + sprintf(p, "%c%d", k->expchar, d->point - 1);
}

static void write_float(fx_dtype dtype, double x, fxi_number_form form, char *p)
{
    const float_kind *k = &kinds[dtype];
    const bool alone = form == FXI_NUMBER_ALONE;
    if (isnan(x)) {
        strcpy(p, alone ? k->nan_alone : k->nan);
        return;
    }
    if (alone && isfinite(x))
        p = fxi_copy_text(p, k->before);
    if (signbit(x))
        *p++ = '-';
    if (isinf(x)) {
        strcpy(p, alone ? k->inf_alone : k->inf);
        return;
    }
    decimal d = {.digits = "0", .count = 1, .point = 1};
    if (x != 0)
        find_digits(dtype, fabs(x), form == FXI_NUMBER_MATRIX, &d);
    p = lay_out(p, &d, k);
    *p = 0;
    if (alone)
        strcpy(fxi_copy_text(p, is_plain(&d, k) ? k->after_plain : ""), k->after);
}

/* ---- any element ----------------------------------------------------------------------------- */

#define LOAD(T, at)                                                                                \
    __extension__({                                                                                \
        T value;                                                                                   \
        memcpy(&value, at, sizeof value);                                                          \
        value;                                                                                     \
    })

const char *fxi_number_text(fx_dtype dtype, const void *element, fxi_number_form form,
                            char buf[FXI_NUMBER_TEXT])
{
    const bool alone = form == FXI_NUMBER_ALONE;
    switch (dtype) {
    case FX_DTYPE_F32:
        write_float(dtype, (double)LOAD(float, element), form, buf);
        break;
    case FX_DTYPE_F64:
        write_float(dtype, LOAD(double, element), form, buf);
        break;
    case FX_DTYPE_F16:
        write_float(dtype, (double)fxi_f16_to_f32(LOAD(uint16_t, element)), form, buf);
        break;
    case FX_DTYPE_BF16:
        write_float(dtype, (double)fxi_bf16_to_f32(LOAD(uint16_t, element)), form, buf);
        break;
    case FX_DTYPE_I32:
        snprintf(buf, FXI_NUMBER_TEXT, "%" PRId32, LOAD(int32_t, element));
        break;
    case FX_DTYPE_I64:
        snprintf(buf, FXI_NUMBER_TEXT, "%" PRId64, LOAD(int64_t, element));
        break;
    case FX_DTYPE_U8:
        snprintf(buf, FXI_NUMBER_TEXT, "0x%02x", LOAD(uint8_t, element));
        break;
    default: {
        const bool b = LOAD(uint8_t, element) != 0;
        strcpy(buf, alone ? (b ? "true" : "false") : (b ? "1" : "0"));
    }
    }
    return buf;
}

void fxi_number_split(fx_dtype dtype, const char *number, int *out_left, int *out_right)
{
    const size_t n = strlen(number);
    const size_t left = kinds[dtype].digits ? strcspn(number, ".eEfF") : n;
    *out_left = (int)left;
    *out_right = (int)(n - left);
}

const char *fxi_float64_text(double v, char buf[FXI_NUMBER_TEXT])
{
    return fxi_number_text(FX_DTYPE_F64, &v, FXI_NUMBER_ALONE, buf);
}

const char *fxi_bytes_text(int64_t bytes, char buf[FXI_NUMBER_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    if (bytes <= 1024) {
        snprintf(buf, FXI_NUMBER_TEXT, "%" PRId64 " byte%s", bytes, bytes == 1 ? "" : "s");
        return buf;
    }
    double value = (double)bytes / 1024;
    int unit = 0;
    for (; value > 1024 && unit < 4; unit++)
        value /= 1024;
    fxi_snprintf(buf, FXI_NUMBER_TEXT, "%.3f %s", value, units[unit]);
    return buf;
}
