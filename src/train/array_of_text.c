/* array_of_text.c: see array_of_text.h. */
#include "array_of_text.h"
#include <cflux/ops.h>
#include <stdlib.h>
#include <string.h>

#include "c_text.h"
#include "memory.h"

static bool is_real(fx_dtype t)
{
    return t == FX_DTYPE_F32 || t == FX_DTYPE_F64 || t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
}

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
            ((double *)values)[i] = fxi_strtod(text, &end);
        else
            ((int64_t *)values)[i] = strtoll(text, &end, 10);
        if (end == text)
            return false;
        text = end;
    }
    return !*text;
}

fx_array *fxi_array_of_text(const char *text)
{
    fx_dtype t;
    int n;
    int64_t sizes[FX_MAX_DIMS];
    const char *elements = read_head(text, &t, &n, sizes);
    const int64_t count = elements ? count_of(n, sizes, strlen(elements) / 2) : -1;
    double *values = count >= 0 ? fxi_calloc((size_t)count + 1, sizeof *values) : NULL;
    fx_array *x = NULL;
    if (values && read_elements(elements, t, count, values)) {
        x = fxi_from(is_real(t) ? FX_DTYPE_F64 : FX_DTYPE_I64, values, n, sizes);
        x = fx_cast(x, t);
        fx_eval(x);
    }
    fxi_free(values);
    return x;
}
