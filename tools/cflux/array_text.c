/* array_text.c: converts a small array to text: see array_text.h. */
#include "array_text.h"
#include "failure.h"
#include "system.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_real(fx_dtype t)
{
    return t == FX_DTYPE_F32 || t == FX_DTYPE_F64 || t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
}

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
    text_stream t = {.to = NULL};
    if (values)
        open_text(&t);
    const fx_dtype as = is_real(fx_eltype(x)) ? FX_DTYPE_F64 : FX_DTYPE_I64;
    const bool good = t.to && (n == 0 || fx_read_as(x, as, values, n) == FX_OK);
    if (good) {
        put_head(t.to, x);
        put_elements(t.to, x, values);
    }
    char *text = close_text(&t);
    if (!t.to || (good && !text))
        memory_error();
    free(values);
    if (good)
        return text;
    free(text);
    return NULL;
}
