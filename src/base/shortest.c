/* shortest.c: the shortest decimal form of a Float64, laid out by Julia's rules.
 *
 * Digits are found by trying 1 to 17 of them and reading each form back: a dozen strtod calls a
 * number, which is nothing for the few numbers of a description and saves the tables of Ryu or
 * Grisu. printf and strtod use the same locale, and only digits are taken from the text, so a
 * decimal comma does no harm. Julia writes d.ddd when the point falls from three places before the
 * first digit to six after it (1.0e-5 but 0.0001; 100000.0 but 1.0e6), else d.ddde±x without
 * padding the exponent.
 */
#include "shortest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits of |v| without trailing zeros; the value is 0.digits · 10^point. */
static void digits_of(double v, char digits[20], int *point)
{
    char form[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(form, sizeof form, "%.*e", precision, v);
        if (strtod(form, NULL) == v)
            break;
    }
    int n = 0;
    const char *p = form;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && n < 19)
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    *point = (int)strtol(p + 1, NULL, 10) + 1;
}

const char *fxi_shortest(double v, char text[FXI_SHORTEST_TEXT])
{
    const char *sign = signbit(v) && !isnan(v) ? "-" : "";
    if (!isfinite(v) || v == 0) {
        snprintf(text, FXI_SHORTEST_TEXT, "%s%s", sign, isnan(v) ? "NaN" : v == 0 ? "0.0" : "Inf");
        return text;
    }
    char digits[20];
    int point;
    digits_of(fabs(v), digits, &point);
    const int n = (int)strlen(digits);
    if (point <= -4 || point > 6)
        snprintf(text, FXI_SHORTEST_TEXT, "%s%c.%se%d", sign, digits[0], n > 1 ? digits + 1 : "0",
                 point - 1);
    else if (point <= 0)
        snprintf(text, FXI_SHORTEST_TEXT, "%s0.%.*s%s", sign, -point, "000", digits);
    else if (point >= n)
        snprintf(text, FXI_SHORTEST_TEXT, "%s%s%.*s.0", sign, digits, point - n, "000000");
    else
        snprintf(text, FXI_SHORTEST_TEXT, "%s%.*s.%s", sign, point, digits, digits + point);
    return text;
}
