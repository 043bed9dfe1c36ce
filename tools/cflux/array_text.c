/* array_text.c: converts a small array to text and back: see array_text.h. */
#include "array_text.h"
#include "failure.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_real(fx_dtype t)
{
    return t == FX_DTYPE_F32 || t == FX_DTYPE_F64 || t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Nine digits distinguish any two 32-bit numbers, 17 any two 64-bit numbers. */
static void put_real(FILE *to, fx_dtype t, double x)
{
    fprintf(to, " %.*g", t == FX_DTYPE_F64 ? 17 : 9, x);
}

static void put_elements(FILE *to, fx_array *x, const void *values)
{
    const fx_dtype t = fx_eltype(x);
    for (int64_t i = 0; i < fx_length(x); i++)
        if (is_real(t))
            put_real(to, t, ((const double *)values)[i]);
        else
            fprintf(to, " %" PRId64, ((const int64_t *)values)[i]);
}

static void put_head(FILE *to, const fx_array *x)
{
    fputs(fx_dtype_name(fx_eltype(x)), to);
    for (int k = 0; k < fx_ndims(x); k++)
        fprintf(to, "%c%" PRId64, k ? 'x' : ' ', fx_size(x, k));
    putc(':', to);
}

char *array_to_text(fx_array *x)
{
    const int64_t n = fx_length(x);
    void *values = calloc((size_t)n + 1, sizeof(double));
    char *text = NULL;
    size_t size;
    FILE *to = values ? open_memstream(&text, &size) : NULL;
    const fx_dtype as = is_real(fx_eltype(x)) ? FX_DTYPE_F64 : FX_DTYPE_I64;
    const bool good = to && (n == 0 || fx_read_as(x, as, values, n) == FX_OK);
    if (good) {
        put_head(to, x);
        put_elements(to, x, values);
    }
    if (!to)
        memory_error();
    const bool whole = to && !ferror(to);
    if (to && (fclose(to) != 0 || !whole || !good)) {
        if (good)
            memory_error();
        free(text);
        text = NULL;
    }
    free(values);
    return text;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads "Float32" and the sizes up to the colon. */
static const char *read_head(const char *text, fx_dtype *out_type, int *out_n, int64_t *sizes)
{
    int t = 0;
    size_t length = 0;
    for (; t < FX_DTYPE_COUNT; t++) {
        length = strlen(fx_dtype_name((fx_dtype)t));
        if (strncmp(text, fx_dtype_name((fx_dtype)t), length) == 0 &&
            (text[length] == ' ' || text[length] == ':'))
            break;
    }
    if (t == FX_DTYPE_COUNT)
        return NULL;
    *out_type = (fx_dtype)t;
    *out_n = 0;
    for (text += length; *text == (*out_n ? 'x' : ' ') && *out_n < FX_MAX_DIMS;) {
        char *end;
        sizes[*out_n] = strtoll(text + 1, &end, 10);
        if (end == text + 1 || sizes[(*out_n)++] < 0)
            return NULL;
        text = end;
    }
    return *text == ':' ? text + 1 : NULL;
}

/* The number of elements; −1 if the text is too short for them. */
static int64_t count_of(int n, const int64_t *sizes, size_t limit)
{
    int64_t count = 1;
    for (int k = 0; k < n; k++)
        if (__builtin_mul_overflow(count, sizes[k], &count))
            return -1;
    return count <= (int64_t)limit ? count : -1;
}

static bool read_elements(const char *text, fx_dtype t, int64_t n, void *values)
{
    for (int64_t i = 0; i < n; i++) {
        char *end;
        if (*text != ' ')
            return false;
        if (is_real(t))
            ((double *)values)[i] = strtod(text, &end);
        else
            ((int64_t *)values)[i] = strtoll(text, &end, 10);
        if (end == text)
            return false;
        text = end;
    }
    return !*text;
}

fx_array *array_of_text(const char *text)
{
    fx_dtype t;
    int n;
    int64_t sizes[FX_MAX_DIMS];
    const char *elements = read_head(text, &t, &n, sizes);
    const int64_t count = elements ? count_of(n, sizes, strlen(elements) / 2) : -1;
    double *values = count >= 0 ? calloc((size_t)count + 1, sizeof *values) : NULL;
    fx_array *x = NULL;
    if (values && read_elements(elements, t, count, values)) {
        x = fxi_from(is_real(t) ? FX_DTYPE_F64 : FX_DTYPE_I64, values, n, sizes);
        x = fx_cast(x, t);
        fx_eval(x);
    }
    free(values);
    return x;
}
