/* golden_npy.c: reads .npy files (NumPy format 1.0 and 2.0) and JSON files.
 *
 * A small reader of its own, so that the recorded numbers do not pass through the code under test.
 * It takes little-endian numbers in C order, which is all that is recorded. Element types that
 * cflux lacks are widened (see golden.h); strings are refused with a reason.
 *
 * Layout: "\x93NUMPY", major, minor, header length (2 bytes in 1.0, else 4), a Python dictionary as
 * text, then the raw elements.
 */
#include "golden.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *gold_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "golden_runner: out of memory\n");
        exit(2);
    }
    return p;
}

static char *read_file(const char *path, size_t *out_size)
{
    *out_size = 0;
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t size = 0, capacity = 4096;
    char *data = gold_alloc(capacity);
    for (size_t n; (n = fread(data + size, 1, capacity - size - 1, f)) > 0;) {
        size += n;
        if (capacity - size > 1)
            continue;
        char *grown = realloc(data, capacity *= 2);
        if (!grown)
            exit(2);
        data = grown;
    }
    fclose(f);
    data[size] = 0;
    *out_size = size;
    return data;
}

cJSON *gold_json_read(const char *path)
{
    size_t size;
    char *text = read_file(path, &size);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    free(text);
    return json;
}

/* ---- elements -------------------------------------------------------------------------------- */
static double half_value(uint16_t h)
{
    const double sign = h & 0x8000 ? -1.0 : 1.0;
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    if (exponent == 31)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    const double unit = exponent ? 1.0 + mantissa / 1024.0 : mantissa / 1024.0;
    return sign * ldexp(unit, exponent ? exponent - 15 : -14);
}

#define LOAD(T, name, value)                                                                       \
    static void load_##name(gold_tensor *t, const char *p, int64_t i)                              \
    {                                                                                              \
        T v;                                                                                       \
        memcpy(&v, p, sizeof v);                                                                   \
        value;                                                                                     \
    }
LOAD(float, f4, t->real[i] = (double)v)
LOAD(double, f8, t->real[i] = v)
LOAD(uint16_t, f2, t->real[i] = half_value(v))
LOAD(int8_t, i1, t->whole[i] = v)
LOAD(int16_t, i2, t->whole[i] = v)
LOAD(int32_t, i4, t->whole[i] = v)
LOAD(int64_t, i8, t->whole[i] = v)
LOAD(uint8_t, u1, t->whole[i] = v)
LOAD(uint16_t, u2, t->whole[i] = v)
LOAD(uint32_t, u4, t->whole[i] = v)
LOAD(uint64_t, u8, t->whole[i] = (int64_t)v)

static const struct format {
    const char *code;
    fx_dtype dtype;
    size_t size;
    void (*load)(gold_tensor *t, const char *p, int64_t i);
} formats[] = {
    {"<f4", FX_DTYPE_F32, 4, load_f4}, {"<f8", FX_DTYPE_F64, 8, load_f8},
    {"<f2", FX_DTYPE_F16, 2, load_f2}, {"|i1", FX_DTYPE_I32, 1, load_i1},
    {"<i2", FX_DTYPE_I32, 2, load_i2}, {"<i4", FX_DTYPE_I32, 4, load_i4},
    {"<i8", FX_DTYPE_I64, 8, load_i8}, {"|u1", FX_DTYPE_U8, 1, load_u1},
    {"<u2", FX_DTYPE_I32, 2, load_u2}, {"<u4", FX_DTYPE_I64, 4, load_u4},
    {"<u8", FX_DTYPE_I64, 8, load_u8}, {"|b1", FX_DTYPE_BOOL, 1, load_u1},
};

/* ---- the header ------------------------------------------------------------------------------ */
static const struct format *find_format(const char *header)
{
    const char *at = strstr(header, "'descr':");
    at = at ? strchr(at + 8, '\'') : NULL;
    for (size_t i = 0; at && i < sizeof formats / sizeof *formats; i++)
        if (!strncmp(at + 1, formats[i].code, 3) && at[4] == '\'')
            return &formats[i];
    return NULL;
}

/* "(2, 3, 4)" → sizes 4, 3, 2. */
static bool parse_shape(const char *header, gold_tensor *t)
{
    const char *at = strstr(header, "'shape':");
    at = at ? strchr(at, '(') : NULL;
    if (!at)
        return false;
    int64_t sizes[FX_MAX_DIMS];
    int n = 0;
    for (at++; *at && *at != ')';) {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at) {
            at++;
            continue;
        }
        if (n == FX_MAX_DIMS || size < 0)
            return false;
        sizes[n++] = size;
        at = end;
    }
    t->ndims = n;
    t->count = 1;
    for (int i = 0; i < n; i++) {
        t->sizes[i] = sizes[n - 1 - i];
        t->count *= sizes[i];
    }
    return *at == ')';
}

static const char *parse(gold_tensor *t, const char *file, size_t size)
{
    if (size < 10 || memcmp(file, "\x93NUMPY", 6) != 0)
        return "not an .npy file";
    const unsigned char *u = (const unsigned char *)file;
    const size_t start = u[6] == 1 ? 10 : 12;
    size_t length = (size_t)u[8] | (size_t)u[9] << 8;
    if (start == 12)
        length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
    if (start + length > size)
        return "truncated header";
    char header[1024] = "";
    memcpy(header, file + start, length < sizeof header ? length : sizeof header - 1);
    const struct format *f = find_format(header);
    if (!f)
        return "an element type that is not read (strings?)";
    if (!strstr(header, "'fortran_order': False"))
        return "not in C order";
    if (!parse_shape(header, t))
        return "a shape that is not understood";
    if (start + length + (size_t)t->count * f->size != size)
        return "the size does not fit the shape";
    t->dtype = f->dtype;
    const size_t bytes = (size_t)t->count * 8;
    if (f->code[1] == 'f')
        t->real = gold_alloc(bytes);
    else
        t->whole = gold_alloc(bytes);
    for (int64_t i = 0; i < t->count; i++)
        f->load(t, file + start + length + (size_t)i * f->size, i);
    return NULL;
}

bool gold_npy_read(const char *path, gold_tensor *out, char *why, size_t capacity)
{
    *out = (gold_tensor){0};
    size_t size;
    char *file = read_file(path, &size);
    const char *problem = file ? parse(out, file, size) : strerror(errno);
    free(file);
    if (problem)
        snprintf(why, capacity, "%s: %s", path, problem);
    return problem == NULL;
}

static bool same_shape(const gold_tensor *t, const cJSON *shape)
{
    bool same = cJSON_GetArraySize(shape) == t->ndims;
    for (int i = 0; same && i < t->ndims; i++)
        same = cJSON_GetNumberValue(cJSON_GetArrayItem(shape, t->ndims - 1 - i)) ==
               (double)t->sizes[i];
    return same;
}

bool gold_load(gold_case *c, const char *folder, const cJSON *spec, gold_tensor *out)
{
    char path[1024], why[1024 + 64];
    const char *file = gold_text(spec, "file", "?"), *dtype = gold_text(spec, "dtype", "");
    const cJSON *shape = gold_list(spec, "shape");
    (void)gold_any(spec, "name");
    gold_check_read(c, spec, file);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!gold_npy_read(path, out, why, sizeof why)) {
        if (strncmp(dtype, "str", 3) && strcmp(dtype, "object"))
            gold_fail(c, "%.700s", why);
        else
            (void)gold_not_built(c, "strings", NULL);
        return false;
    }
    if (shape && !same_shape(out, shape))
        gold_fail(c, "%s: its shape is not the one that case.json says", file);
    return true;
}

void gold_tensor_free(gold_tensor *t)
{
    free(t->real);
    free(t->whole);
    *t = (gold_tensor){0};
}

/* Float32 is converted here; narrow integers and Float16 go in as Int64 and Float64, which hold
 * them exactly, and are converted by the library's cast. */
fx_array *gold_array(const gold_tensor *t, fx_dtype real_dtype)
{
    const bool plain = t->dtype == FX_DTYPE_F32 || t->dtype == FX_DTYPE_F64;
    const fx_dtype dtype = plain && real_dtype != FX_DTYPE_COUNT ? real_dtype : t->dtype;
    if (!t->real || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16) {
        const fx_dtype wide = t->real ? FX_DTYPE_F64 : FX_DTYPE_I64;
        const void *data = t->real ? (const void *)t->real : (const void *)t->whole;
        fx_array *x = fxi_from(wide, data, t->ndims, t->sizes);
        if (dtype == wide)
            return x;
        x = fx_cast(x, dtype);
        fx_eval(x);
        return x;
    }
    float *narrow = gold_alloc((size_t)t->count * sizeof *narrow);
    for (int64_t i = 0; i < t->count; i++)
        narrow[i] = (float)t->real[i];
    fx_array *x = fxi_from(FX_DTYPE_F32, narrow, t->ndims, t->sizes);
    free(narrow);
    return x;
}
