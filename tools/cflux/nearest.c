/* nearest.c: finds similar names by the Damerau–Levenshtein distance (changes and swaps of
 * neighbours). */
#include "nearest.h"
#include <ctype.h>
#include <limits.h>
#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int lower(char c)
{
    return tolower((unsigned char)c);
}

static int distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return INT_MAX;
    int rows[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = (int)(i + j);
                continue;
            }
            const int change = lower(a[i - 1]) != lower(b[j - 1]);
            int d = least(rows[i - 1][j], rows[i][j - 1]) + 1;
            d = least(d, rows[i - 1][j - 1] + change);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                d = least(d, rows[i - 2][j - 2] + 1);
            rows[i][j] = d;
        }
    return rows[n][m];
}

const char *nearest(const char *word, const char *const *names, int n)
{
    const int letters = (int)strlen(word), third = letters / 3;
    int best = least((third > 1 ? third : 1) + 1, letters);
    const char *found = NULL;
    for (int i = 0; i < n; i++) {
        const int d = distance(word, names[i]);
        if (d < best) {
            best = d;
            found = names[i];
        }
    }
    return found;
}
