/* gpu_say.c: builds the text of a kernel: appends text from C code, and texts of kernels/ with
 * their placeholders filled (kernels/prelude.cl describes their form).
 */
#include "gpu_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const preludes[FXI_GPU_DIALECTS][2] = {
    [FXI_GPU_OPENCL] = {fxi_gpu_text_opencl},
    [FXI_GPU_CUDA] = {fxi_gpu_text_cuda_and_hip, fxi_gpu_text_cuda},
    [FXI_GPU_HIP] = {fxi_gpu_text_cuda_and_hip, fxi_gpu_text_hip},
    [FXI_GPU_METAL] = {fxi_gpu_text_metal, fxi_gpu_text_metal_functions},
    [FXI_GPU_HOST] = {fxi_gpu_text_host},
};

/* ---- text ------------------------------------------------------------------------------------ */
/* Doubles the memory, so that a text is copied few times while it grows. */
static bool grow(fxi_gpu_builder *b, size_t more)
{
    if (b->length + more < b->capacity)
        return true;
    const size_t capacity = 2 * (b->length + more);
    char *text = b->runtime->host->alloc(capacity);
    if (!text) {
        fxi_gpu_no_memory(b);
        return false;
    }
    if (b->text)
        memcpy(text, b->text, b->length + 1);
    b->runtime->host->free(b->text);
    b->text = text;
    b->capacity = capacity;
    return true;
}

static void say_bytes(fxi_gpu_builder *b, const char *bytes, size_t n)
{
    if (b->status || !grow(b, n))
        return;
    memcpy(b->text + b->length, bytes, n);
    b->length += n;
    b->text[b->length] = '\0';
}

void fxi_gpu_say(fxi_gpu_builder *b, const char *format, ...)
{
    /* Longer texts are appended as parts; a line that does not fit is a mistake in the code. */
    char text[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        fxi_gpu_fail(b, FX_STATUS_INTERNAL,
                     "a line of a kernel's text has %d bytes, at most %zu fit", n, sizeof text - 1);
    else
        say_bytes(b, text, (size_t)n);
}

/* ---- placeholders ---------------------------------------------------------------------------- */
static fxi_gpu_value *value_of(fxi_gpu_builder *b, const char *name, size_t n)
{
    for (int k = 0; k < b->nvalues; k++)
        if (strncmp(b->values[k].name, name, n) == 0 && b->values[k].name[n] == '\0')
            return &b->values[k];
    return NULL;
}

static void set(fxi_gpu_builder *b, fxi_gpu_value value)
{
    fxi_gpu_value *v = value_of(b, value.name, strlen(value.name));
    if (!v && b->nvalues == FXI_GPU_VALUES)
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "a kernel's text has more than %d placeholders",
                     FXI_GPU_VALUES);
    else
        /* Set again: a text that several kernels share gets other values. */
        *(v ? v : &b->values[b->nvalues++]) = value;
}

void fxi_gpu_set(fxi_gpu_builder *b, const char *name, const char *value)
{
    set(b, (fxi_gpu_value){.name = name, .text = value});
}

void fxi_gpu_set_number(fxi_gpu_builder *b, const char *name, int64_t value)
{
    set(b, (fxi_gpu_value){.name = name, .number = value});
}

static void say_value(fxi_gpu_builder *b, const char *name, size_t n)
{
    const fxi_gpu_value *v = value_of(b, name, n);
    if (!v)
        fxi_gpu_fail(b, FX_STATUS_INTERNAL,
                     "a kernel's text has a placeholder without a value: %.*s", (int)n, name);
    else if (v->text)
        say_bytes(b, v->text, strlen(v->text));
    else
        fxi_gpu_say(b, "%lld", (long long)v->number);
}

/* Appends the text up to the placeholder at `at`, without the blanks before a placeholder that has
 * a line of its own. Returns the rest after the placeholder; after a whole line, from the next line
 * on. */
static const char *say_before(fxi_gpu_builder *b, const char *text, const char *at,
                              const char *behind)
{
    const char *line = at;
    while (line > text && line[-1] == ' ')
        line--;
    say_bytes(b, text, (size_t)(line - text));
    const bool whole = *behind == '\n' && !b->status && b->text[b->length - 1] == '\n';
    if (!whole)
        say_bytes(b, line, (size_t)(at - line));
    return behind + whole;
}

/* A placeholder is a name between two @ signs. The texts contain no other @. */
const char *fxi_gpu_say_until(fxi_gpu_builder *b, const char *text, const char *placeholder)
{
    const char *at;
    while ((at = strchr(text, '@')) != NULL) {
        const char *name = at + 1;
        const size_t n = strcspn(name, "@");
        const char *behind = name + n + (name[n] == '@');
        if (placeholder && strlen(placeholder) == n && strncmp(name, placeholder, n) == 0)
            return say_before(b, text, at, behind);
        say_bytes(b, text, (size_t)(at - text));
        say_value(b, name, n);
        text = behind;
    }
    say_bytes(b, text, strlen(text));
    if (placeholder)
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "a kernel's text has no placeholder %s", placeholder);
    return "";
}

void fxi_gpu_say_part(fxi_gpu_builder *b, const char *text)
{
    fxi_gpu_say_until(b, text, NULL);
}

/* ---- kernels --------------------------------------------------------------------------------- */
/* Every text begins with the dialect's macros and the common functions, because it is compiled
 * without headers. */
void fxi_gpu_begin_groups(fxi_gpu_builder *b, bool wide, int group)
{
    fxi_gpu_begin_large_groups(b, wide, group, 0);
}

void fxi_gpu_begin_large_groups(fxi_gpu_builder *b, bool wide, int group, int asked_memory)
{
    const fxi_gpu_dialect dialect = b->runtime->dialect;
    b->length = 0;
    b->wide = wide;
    b->group = group;
    b->asked_memory = asked_memory;
    b->kernel = NULL;
    b->nvalues = 0;
    /* Placeholders that every text may have. */
    fxi_gpu_set_number(b, "each", fxi_gpu_each(b));
    fxi_gpu_set_number(b, "vector", b->limits->vector_bytes);
    b->own = "";
    fxi_gpu_set(b, "own", b->own);
    fxi_gpu_say(b, FXI_GPU_GROUP_LINE "%d\n%s%s%s%s%s", group, wide ? "#define FX_WIDE\n" : "",
                b->limits->f64 ? "#define FX_HAS_F64\n" : "",
                b->limits->rounds_division ? "#define FX_DIVIDES\n" : "",
                b->limits->atomic64 ? "#define FX_HAS_ATOMIC64\n" : "",
                b->limits->atomic_f32 ? "#define FX_HAS_ATOMIC_F32\n" : "");
    if (asked_memory > 0)
        fxi_gpu_say(b, "#define FX_ALONE\n");
    if (fxi_gpu_warp(b) > 0)
        fxi_gpu_say(b, "#define FX_WARP %d\n", (int)fxi_gpu_warp(b));
    for (int k = 0; k < 2 && preludes[dialect][k]; k++)
        fxi_gpu_say_part(b, preludes[dialect][k]);
    fxi_gpu_say_part(b, fxi_gpu_text_common);
    fxi_gpu_say_part(b, fxi_gpu_text_arithmetic);
}

void fxi_gpu_kernel_with_table(fxi_gpu_builder *b, const char *name, int nbuffers, int ntable,
                               int nparams)
{
    const int single = nbuffers - ntable;
    b->name = name;
    b->nbuffers = nbuffers;
    b->ntable = ntable;
    b->nparams = nparams;
    /* An address and an offset for each buffer, as OpenCL passes them; a table has no offsets. */
    const int bytes = (2 * single + ntable) * (int)sizeof(int64_t) + nparams * (b->wide ? 8 : 4);
    if (single > b->limits->buffers || ntable > FXI_GPU_TABLE || nparams > FXI_GPU_PARAMS ||
        bytes > b->limits->param_bytes)
        fxi_gpu_too_much(b,
                         "a kernel with %d operands and outputs and %d parameters exceeds the "
                         "limits of %s",
                         nbuffers, nparams, b->device->name);
    fxi_gpu_say(b, "typedef struct { fx_int v[%d]; } fx_params;\n", nparams);
    /* C has no arrays without elements. */
    fxi_gpu_say(b, "typedef struct { fx_i64 v[%d]; } fx_offsets;\n", single > 0 ? single : 1);
    if (ntable > 0)
        fxi_gpu_say(b, "typedef struct { void *v[%d]; } fx_table;\n", ntable);
    fxi_gpu_say(b, "FX_KERNEL %s(", name);
    for (int k = 0; k < single; k++)
        fxi_gpu_say(b, "FX_B(%d), ", k);
    fxi_gpu_say(b, ntable > 0 ? "FX_TABLE, FX_ARGS)\n{\n" : "FX_ARGS)\n{\n");
}

void fxi_gpu_kernel(fxi_gpu_builder *b, const char *name, int nbuffers, int nparams)
{
    fxi_gpu_kernel_with_table(b, name, nbuffers, 0, nparams);
}

void fxi_gpu_end(fxi_gpu_builder *b)
{
    fxi_gpu_say(b, "}\n");
    if (!b->status)
        b->status = b->runtime->kernel(b->device, b->name, b->text, &b->kernel);
}
