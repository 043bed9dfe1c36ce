/* c_text_posix.c: text functions on POSIX systems; see c_text.h. The C locale is opened once and
 * never closed. If that fails for lack of memory, numbers are read and written in the
 * program's locale; it cannot fail in glibc and musl, where the C locale is a constant.
 */
#include "c_text.h"
#include "posix.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void open_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double fxi_strtod(const char *text, char **out_end)
{
    pthread_once(&once, open_locale);
    return c_locale ? strtod_l(text, out_end, c_locale) : strtod(text, out_end);
}

float fxi_strtof(const char *text, char **out_end)
{
    pthread_once(&once, open_locale);
    return c_locale ? strtof_l(text, out_end, c_locale) : strtof(text, out_end);
}

int fxi_vsnprintf(char *to, size_t size, const char *format, va_list args)
{
    pthread_once(&once, open_locale);
    const locale_t own = c_locale ? uselocale(c_locale) : (locale_t)0; /* of this thread */
    const int n = vsnprintf(to, size, format, args);
    if (own)
        uselocale(own);
    return n;
}

bool fxi_same_ignoring_case(const char *a, const char *b)
{
    return strcasecmp(a, b) == 0;
}

bool fxi_same_start_ignoring_case(const char *a, const char *b, size_t n)
{
    return strncasecmp(a, b, n) == 0;
}

bool fxi_contains_ignoring_case(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

char *fxi_cut_word(const char *separators, char **io_rest)
{
    return strtok_r(NULL, separators, io_rest);
}
