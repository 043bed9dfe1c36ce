/* text_parts.c: ends of texts, numbers and sizes as text: see text_parts.h. */
#include "text_parts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool is_number_text(const char *text)
{
    char *end;
    strtod(text, &end);
    return end != text && !*end;
}

/* The length of a separator between two sizes; 0 if there is none here. */
static size_t separator_length(const char *text)
{
    static const char *const separators[] = {"x", "×", ",", "*"};
    for (size_t i = 0; i < sizeof separators / sizeof *separators; i++)
        if (strncmp(text, separators[i], strlen(separators[i])) == 0)
            return strlen(separators[i]);
    return 0;
}

const char *text_of_row(fx_array *column, void *labels, int64_t row)
{
    const float *codes = fx_data(fx_cast(column, FX_DTYPE_F32));
    return codes && row >= 0 && !isnan(codes[row]) ? fx_child_name(labels, (int64_t)codes[row])
                                                   : NULL;
}

int64_t first_row(fx_array *column, void *labels, bool number)
{
    const int64_t n = fx_count(labels), rows = fx_length(column);
    const float *codes = fx_data(fx_cast(column, FX_DTYPE_F32));
    bool *wanted = calloc((size_t)n + 1, sizeof *wanted);
    int64_t row = 0;
    for (int64_t k = 0; wanted && k < n; k++)
        wanted[k] = is_number_text(fx_child_name(labels, k)) == number;
    while (wanted && codes && row < rows && (isnan(codes[row]) || !wanted[(int64_t)codes[row]]))
        row++;
    const bool found = wanted && codes && row < rows;
    free(wanted);
    return found ? row : -1;
}

int read_sizes(const char *text, int64_t sizes[FX_MAX_DIMS])
{
    for (int n = 0; n < FX_MAX_DIMS - 1;) {
        char *end;
        sizes[n++] = strtoll(text, &end, 10);
        if (end == text || sizes[n - 1] < 1)
            return 0;
        if (!*end)
            return n;
        const size_t between = separator_length(end);
        if (between == 0)
            return 0;
        text = end + between;
    }
    return 0;
}
