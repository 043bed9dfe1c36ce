/* state_numbers.c: see state_numbers.h. */
#include "state_numbers.h"
#include "error.h"
#include "memory.h"
#include "state_parts.h"

#include <cflux/io.h>
#include <stdio.h>
#include <string.h>

static fx_array *no_memory(const char *op, int64_t n)
{
    return fx_error_array(
        fx_fail(FX_STATUS_MEMORY, op, "no memory for %lld numbers", (long long)n));
}

fx_array *fxi_numbers_of(const char *op, void *object)
{
    const int64_t n = fx_is_array(object) ? -1 : fxi_state_numbers(object, NULL, 0);
    if (n == -2)
        return fx_error_array(fx_error_status());
    if (n <= 0)
        return NULL;
    double *numbers = fxi_calloc((size_t)n, sizeof *numbers);
    if (!numbers)
        return no_memory(op, n);
    fx_array *x = fxi_state_numbers(object, numbers, n) == n
                      ? fxi_from(FX_DTYPE_F64, numbers, 1, &n)
                      : fx_error_array(FX_STATUS_MEMORY);
    fxi_free(numbers);
    return x;
}

fx_status fxi_numbers_assign(const char *op, void *object, fx_array *x)
{
    const int64_t n = fx_length(x);
    double *numbers = fxi_calloc((size_t)n + 1, sizeof *numbers);
    if (!numbers)
        return fx_array_status(no_memory(op, n));
    fx_status status = n > 0 ? fx_read_as(x, FX_DTYPE_F64, numbers, n) : FX_OK;
    if (status == FX_OK)
        status = fxi_state_numbers_set(object, numbers, n, true);
    fxi_free(numbers);
    if (status != FX_STATUS_ARGUMENT)
        return status;
    fx_message(
        1, "%s: the numbers of the optimiser state, such as its learning rate, are unchanged: %s",
        op, fx_error_take().message);
    return FX_OK;
}

static const char suffix[] = "cflux.numbers";

bool fxi_is_numbers_name(const char *name)
{
    const size_t n = strlen(name), size = sizeof suffix - 1;
    return n >= size && strcmp(name + n - size, suffix) == 0 &&
           (n == size || name[n - size - 1] == '.');
}

const char *fxi_numbers_name(const char *name)
{
    const size_t size = strlen(name) + 1 + sizeof suffix;
    char *text = fxi_calloc(size, 1);
    if (!text)
        return NULL;
    snprintf(text, size, "%s%s%s", name, *name ? "." : "", suffix);
    const void *string = fx_string(text);
    fxi_free(text);
    return fx_is_error(string) ? NULL : fx_string_text(string);
}
