/* test_safetensors.c: safetensors files: good ones with recorded values, bad ones, written files
 * that the library and a separate reader in Python read back, and every system call failing in
 * turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_index.h"
#include "file_out.h"
#include "python_run.h"
#include "temp_file.h"

/* ---- files of others ------------------------------------------------------------------------- */

static void recorded_files(void **state)
{
    (void)state;
    cJSON *index = data_index("formats/safetensors/index.json");
    if (!index) {
        printf("skipped: no recorded safetensors files\n");
        return;
    }
    int good = 0, bad = 0;
    cJSON *each;
    cJSON_ArrayForEach(each, index)
    {
        FX_SCOPE;
        char rest[300];
        snprintf(rest, sizeof rest, "formats/%s", cJSON_GetObjectItem(each, "file")->valuestring);
        const char *path = recorded_path(rest);
        assert_non_null(path);
        const bool expected = !strcmp(cJSON_GetObjectItem(each, "expect")->valuestring, "ok");
        void *file = fx_load(path);
        if (expected == fx_is_error(file))
            fail_msg("%s: %s", path, fx_error_take().message);
        good += expected;
        bad += !expected;
        const fx_error error = fx_error_take();
        if (expected)
            continue;
        assert_int_equal(error.status, FX_STATUS_FORMAT);
        assert_non_null(strstr(error.message, path));
        assert_non_null(strstr(error.message, ": safetensors: offset "));
    }
    cJSON_Delete(index);
    assert_true(good >= 6);
    assert_true(bad >= 22);
}

/* The values that the writers of these files gave them. */
static void recorded_values(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = recorded_path("formats/safetensors/good/test_deserialization_0.safetensors");
    if (!path) {
        printf("skipped: no recorded safetensors files\n");
        return;
    }
    void *file = fx_load(path);
    fx_array *x = fx_child_named(file, "test");
    assert_int_equal(fx_count(file), 1);
    assert_int_equal(fx_eltype(x), FX_DTYPE_I32);
    assert_int_equal(fx_ndims(x), 2);
    assert_int_equal(fx_length(x), 4);
    path = recorded_path("formats/safetensors/good/test_zero_sized_tensor_0.safetensors");
    x = fx_load_key(path, "test");
    assert_int_equal(fx_ndims(x), 2);
    assert_int_equal(fx_size(x, 0), 0);
    assert_int_equal(fx_size(x, 1), 2);
    path = recorded_path("formats/safetensors/real/mlx-c__arrays.safetensors");
    file = fx_load(path);
    assert_false(fx_is_error(file));
    assert_true(fx_count(file) >= 2);
    assert_int_equal(fx_eval(file), FX_OK);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const char *made(const char *header, size_t data)
{
    char bytes[4000] = {0};
    const size_t n = strlen(header);
    bytes[0] = (char)(n & 255);
    bytes[1] = (char)(n >> 8);
    memcpy(bytes + 8, header, n);
    return temp_file("made.safetensors", bytes, 8 + n + data);
}

static void refused(const char *header, size_t data, const char *reason)
{
    FX_SCOPE;
    assert_true(fx_is_error(fx_load(made(header, data))));
    const fx_error error = fx_error_take();
    if (error.status != FX_STATUS_FORMAT || !strstr(error.message, reason))
        fail_msg("\"%s\" is not in \"%s\"", reason, error.message);
}

#define ONE(name, type, shape, offsets)                                                            \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void headers_that_are_wrong(void **state)
{
    (void)state;
    refused("{", 0, "offset 9: expected a string, found the end of the text");
    refused("{}x", 0, "more text after the header");
    refused("{" ONE("a", "F32", "[1]", "[0,4]") "}", 8, "4 bytes belong to no array");
    refused("{" ONE("a", "F32", "[1]", "[0,4]") "," ONE("a", "F32", "[1]", "[4,8]") "}", 8,
            "the name \"a\" appears twice");
    refused("{" ONE("", "F32", "[1]", "[0,4]") "}", 4, "the name of an array is empty");
    refused("{" ONE("a", "F32", "[1]", "[0,4]") "," ONE("b", "F32", "[1]", "[2,6]") "}", 6,
            "starts at byte 2 of the data, but the previous one ends at 4");
    refused("{" ONE("a", "F32", "[2,3]", "[0,4]") "}", 4,
            "24 bytes according to its shape, but 4 according to its offs");
    refused("{" ONE("a", "F32", "[9223372036854775807,4]", "[0,4]") "}", 4,
            "is 2^59 bytes or more");
    refused("{" ONE("a", "F32", "[0,4611686018427387904]", "[0,0]") "}", 0,
            "is 2^59 bytes or more");
    refused("{" ONE("a", "I8", "[288230376151711744,0]", "[0,0]") "}", 0, "is 2^59 bytes or more");
    refused("{" ONE("a", "F32", "[9223372036854775808]", "[0,4]") "}", 4, "larger than 2^63 - 1");
    refused("{" ONE("a", "F32", "[-1]", "[0,4]") "}", 4, "expected a whole number, found '-'");
    refused("{" ONE("a", "F32", "[1.0]", "[0,4]") "}", 4, "integer without leading zeros");
    refused("{" ONE("a", "F32", "[01]", "[0,4]") "}", 4, "integer without leading zeros");
    refused("{" ONE("a", "F33", "[1]", "[0,4]") "}", 4, "unknown element type \"F33\"");
    refused("{" ONE("a", "BOOL", "[1]", "[0,9]") "}", 4, "the data has 4 bytes");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "the array lacks its data_offsets");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4, "\"dtype\" is given twice");
    refused("{\"a\":{\"x\":[[[[[[[[[[1]]]]]]]]]]}}", 4, "\"x\" is not one of dtype, shape");
    refused("{\"__metadata__\":{\"a\":1}}", 0, "expected a string, found '1'");
    refused("{\"__metadata__\":{\"a\":!}}", 0, "expected a string, found '!'");
    refused("{\"__metadata__\":{\"a\":~}}", 0, "expected a string, found '~'");
    refused("{\"__metadata__\":{\"a\":\177}}", 0, "expected a string, found the byte 127");
    refused("{\"__metadata__\":{\"a\":\1}}", 0, "expected a string, found the byte 1");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "the metadata appears twice");
    refused("{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"2\"}}", 0,
            "the metadata contain the key \"a\" twice");
    refused("{" ONE("\\u0000", "F32", "[1]", "[0,4]") "}", 4, "the escape \\u0000 is not allowed");
    refused("{" ONE("\\ud800", "F32", "[1]", "[0,4]") "}", 4, "the escape \\uD800 is not allowed");
    refused("{" ONE("\\q", "F32", "[1]", "[0,4]") "}", 4, "unknown escape");
    refused("{" ONE("a\nb", "F32", "[1]", "[0,4]") "}", 4, "a string contains the byte 10");
    refused("{" ONE("\xC0\x80", "F32", "[1]", "[0,4]") "}", 4, "not UTF-8");
    refused("{" ONE("a", "F32", "[2,2,2,2,2,2,2,2,2]", "[0,2048]") "}", 2048, "more than 8 axes");
}

static void names_are_unescaped(void **state)
{
    (void)state;
    FX_SCOPE;
    void *file =
        fx_load(made("{" ONE("\\u00e9\\ud83d\\ude00\\n\\\"\\/", "U8", "[]", "[0,1]") "}", 1));
    assert_string_equal(fx_child_name(file, 0), "\xC3\xA9\xF0\x9F\x98\x80\n\"/");
    assert_int_equal(fx_ndims(fx_child(file, 0)), 0);
}

/* ---- element types --------------------------------------------------------------------------- */

static void load_bytes(const char *type, const void *data, size_t n, int count, fx_dtype expected,
                       const double *values)
{
    FX_SCOPE;
    char header[200], bytes[300] = {0};
    const int length = snprintf(
        header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}",
        type, count, n);
    bytes[0] = (char)length;
    memcpy(bytes + 8, header, (size_t)length); /* of any length: elements are not aligned */
    memcpy(bytes + 8 + length, data, n);
    fx_array *x = fx_load_key(temp_file("type.safetensors", bytes, 8 + (size_t)length + n), "a");
    if (fx_is_error(x))
        fail_msg("%s: %s", type, fx_error_take().message);
    assert_int_equal(fx_eltype(x), expected);
    const int parts = *type == 'C' ? 2 : 1;
    assert_int_equal(fx_length(x), count * parts);
    for (int i = 0; i < count * parts; i++)
        if (!(fx_at(x, i) == values[i] || (isnan(values[i]) && isnan(fx_at(x, i)))))
            fail_msg("%s[%d] is %g, expected %g", type, i, fx_at(x, i), values[i]);
}

#define LOAD(type, T, as, ...)                                                                     \
    load_bytes(type, (const T[]){__VA_ARGS__}, sizeof((const T[]){__VA_ARGS__}),                   \
               (int)(sizeof((const T[]){__VA_ARGS__}) / sizeof(T)), as,                            \
               (const double[]){__VA_ARGS__})

static void element_types(void **state)
{
    (void)state;
    LOAD("F64", double, FX_DTYPE_F64, 0.1, -1e300, INFINITY);
    LOAD("F32", float, FX_DTYPE_F32, 0.5f, -1e30f);
    LOAD("I64", int64_t, FX_DTYPE_I64, 5, -(1LL << 50));
    LOAD("I32", int32_t, FX_DTYPE_I32, 5, INT32_MIN);
    LOAD("I16", int16_t, FX_DTYPE_I32, 5, -32768, 32767);
    LOAD("I8", int8_t, FX_DTYPE_I32, 5, -128, 127);
    LOAD("U8", uint8_t, FX_DTYPE_U8, 5, 255);
    LOAD("U16", uint16_t, FX_DTYPE_I32, 5, 65535);
    LOAD("U32", uint32_t, FX_DTYPE_I64, 5, 4294967295);
    LOAD("U64", uint64_t, FX_DTYPE_I64, 5, 1ULL << 62);
    LOAD("U64", uint64_t, FX_DTYPE_F64, 5, 1ULL << 63);
    LOAD("BOOL", uint8_t, FX_DTYPE_BOOL, 0, 1, 1);
    load_bytes("F16", (const uint16_t[]){0x3C00, 0xC000, 0x7C00}, 6, 3, FX_DTYPE_F16,
               (const double[]){1, -2, INFINITY});
    load_bytes("BF16", (const uint16_t[]){0x3F80, 0xC000}, 4, 2, FX_DTYPE_BF16,
               (const double[]){1, -2});
    /* OCP 8-bit floating point specification, table 2: largest, smallest, and special values. */
    load_bytes("F8_E4M3", (const uint8_t[]){0x7E, 0xFE, 0x01, 0x08, 0x38, 0x80, 0x7F}, 7, 7,
               FX_DTYPE_F32, (const double[]){448, -448, 0.001953125, 0.015625, 1, -0.0, NAN});
    load_bytes("F8_E5M2", (const uint8_t[]){0x7B, 0x01, 0x04, 0x3C, 0x7C, 0xFC, 0x7D}, 7, 7,
               FX_DTYPE_F32,
               (const double[]){57344, 0x1p-16, 0x1p-14, 1, INFINITY, -INFINITY, NAN});
    load_bytes("F8_E8M0", (const uint8_t[]){127, 0, 254, 255}, 4, 4, FX_DTYPE_F32,
               (const double[]){1, 0x1p-127, 0x1p127, NAN});
    load_bytes("C64", (const float[]){1, 2, 3, -4}, 16, 2, FX_DTYPE_F32,
               (const double[]){1, 2, 3, -4});
    FX_SCOPE;
    static const char header[] = "{" ONE("a", "BOOL", "[1]", "[0,1]") "}";
    char two[100] = {sizeof header - 1};
    memcpy(two + 8, header, sizeof header);
    two[8 + sizeof header - 1] = 2;
    assert_true(fx_is_error(fx_load(temp_file("two.safetensors", two, 8 + sizeof header))));
    assert_non_null(strstr(fx_error_take().message, "a Bool is 2, expected 0 or 1"));
}

/* ---- models ---------------------------------------------------------------------------------- */

static fx_chain_layer *network(uint64_t seed)
{
    fx_seed(seed);
    return fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU), fx_batchnorm(2), FX_FLATTEN,
                    fx_dense(8, 3, .bias = false), fx_dense(3, 2), FX_SOFTMAX);
}

static void same_values(void *a, void *b)
{
    fx_array *x = fx_destructure(a), *y = fx_destructure(b);
    assert_int_equal(fx_length(x), fx_length(y));
    for (int64_t i = 0; i < fx_length(x); i++)
        assert_true(fx_at(x, i) == fx_at(y, i));
}

static void a_model_comes_back(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = network(1), *other = network(2);
    const char *path = temp_text("model.safetensors", "");
    assert_int_equal(fx_save(path, "model", m, "", fx_metadata("author", "nobody \"at\" all")),
                     FX_OK);
    assert_int_equal(fx_load_into(path, "model", other), FX_OK);
    same_values(m, other);
    void *file = fx_load(path);
    assert_string_equal(fx_child_name(file, 0), "model.layers.0.weight");
    assert_string_equal(fx_metadata_text(fx_child_named(file, "__metadata__"), "author"),
                        "nobody \"at\" all");
    void *below = fx_load_key(path, "model.layers.4");
    assert_int_equal(fx_count(below), 2);
    assert_string_equal(fx_child_name(below, 1), "bias");
    /* Another model is refused and unchanged. */
    fx_dense_layer *dense = fx_dense(3, 2);
    const double before = fx_at(dense->weight, 0);
    assert_int_equal(fx_load_into(path, "model", dense), FX_STATUS_FORMAT);
    assert_non_null(strstr(fx_error_take().message, "does not exist in the object"));
    assert_int_equal(fx_load_into(path, "model.layers.3", dense), FX_STATUS_FORMAT);
    assert_non_null(strstr(fx_error_take().message, "there is no array \"model.layers.3.bias\""));
    assert_int_equal(fx_load_into(path, "model.layers.4", fx_dense(4, 2)), FX_STATUS_SHAPE);
    assert_non_null(strstr(fx_error_take().message,
                           "the array \"model.layers.4.weight\" is a 2×3 Matrix{Float32}, but"));
    assert_true(fx_at(dense->weight, 0) == before);
    assert_int_equal(fx_load_into(path, "model.layers.4", dense), FX_OK);
    assert_int_equal(fx_load_into(path, "modle", dense), FX_STATUS_FORMAT);
    assert_non_null(
        strstr(fx_error_take().message,
               "there is no entry \"modle\"; the file has \"model.layers.0.weight\", "));
    assert_true(fx_is_error(fx_load_key(path, "nothing")));
    assert_non_null(
        strstr(fx_error_take().message,
               "there is no entry \"nothing\"; the file has \"model.layers.0.weight\", "));
    fx_error_take();
}

static void tied_arrays_have_both_names(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *d = fx_dense(3, 3);
    void *m = fx_chain(d, FX_TANH, d), *pair = fx_tuple(d->weight, d->weight);
    const char *path = temp_text("tied.safetensors", "");
    assert_int_equal(fx_save(path, "m", m, "pair", pair), FX_OK);
    assert_int_equal(fx_count(fx_load(path)), 6);
    fx_dense_layer *e = fx_dense(3, 3);
    assert_int_equal(fx_load_into(path, "m", fx_chain(e, FX_TANH, e)), FX_OK);
    same_values(d, e);
}

static void what_cannot_be_saved(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("kept.safetensors", "old");
    fx_array *x = fx_vector(1, 2);
    assert_int_equal(fx_save(path, "a", x, "a", x), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "save: two arrays would be called \"a\"");
    assert_int_equal(fx_save(path, "", x), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "save: an array has no name");
    assert_int_equal(fx_save(path, "a", NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_save(path, "a", fx_add(x, fx_vector(1, 2, 3))), FX_STATUS_SHAPE);
    fx_error_take();
    assert_int_equal(fx_save(path, "\xFF", x), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_save("m.xyz", "a", x), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "m.xyz: unknown extension; use one of "));
    FILE *f = fopen(path, "r");
    char text[8] = "";
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "old");
}

/* ---- an independent reader ------------------------------------------------------------------- */

static void python_reads_what_is_written(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("ours.safetensors", "");
    fx_array *f16 = fx_cast(fx_vector(1, -2), FX_DTYPE_F16);
    const int64_t longs[] = {1LL << 40, -7};
    const uint8_t bytes[] = {200, 1, 2};
    const bool flags[] = {true, false};
    const double tenth = 0.1;
    assert_int_equal(
        fx_save(path, "u8", fx_from(FX_DTYPE_U8, bytes, 3), "f32",
                fx_reshape(fx_range(0, 1, 6), 3, 2), "i64", fx_from(FX_DTYPE_I64, longs, 2),
                "flags", fx_from(FX_DTYPE_BOOL, flags, 2), "f16", f16, "f64",
                fxi_from(FX_DTYPE_F64, &tenth, 0, NULL), "none", fx_zeros(0, 4), "bf16",
                fx_cast(fx_vector(1.5), FX_DTYPE_BF16), "i32",
                fx_range_dtype(FX_DTYPE_I32, -1, 1, 3), "md", fx_metadata("k", "\xC3\xA9\n")),
        FX_OK);
    const char *python = python_that("-c 0");
    char command[1200];
    need_python(python);
    snprintf(command, sizeof command, "%s -B tests/support/read_safetensors.py '%s'", python, path);
    FILE *p = popen(command, "r");
    char out[2000];
    const size_t n = fread(out, 1, sizeof out - 1, p);
    out[n] = 0;
    assert_int_equal(pclose(p), 0);
    assert_string_equal(out, "metadata k '\xC3\xA9\\n'\n"
                             "u8 U8 [3] (200, 1, 2)\n"
                             "f32 F32 [2, 3] (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)\n"
                             "i64 I64 [2] (1099511627776, -7)\n"
                             "flags BOOL [2] (True, False)\n"
                             "f16 F16 [2] (1.0, -2.0)\n"
                             "f64 F64 [] (0.1,)\n"
                             "none F32 [4, 0] ()\n"
                             "bf16 BF16 [1] (1.5,)\n"
                             "i32 I32 [3] (-1, 0, 1)\n");
}

/* ---- faults ---------------------------------------------------------------------------------- */

static bool holds(const char *path, double value)
{
    FX_SCOPE;
    fx_array *x = fx_load_key(path, "x");
    return !fx_is_error(x) && fx_at(x, 1) == value;
}

static void failing_calls_leave_the_old_file(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("faults.safetensors", "");
    int failed = 0;
    for (int64_t k = 0;; k++) {
        assert_int_equal(fx_save(path, "x", fx_vector(1, 2)), FX_OK);
        fxi_file_fault_set(k, EIO);
        const fx_status status = fx_save(path, "x", fx_vector(3, 4));
        const bool done = fxi_file_fault_seen() <= k;
        fxi_file_fault_set(-1, 0);
        if (done)
            break;
        const fx_error error = fx_error_take();
        const bool folder = strstr(error.message, "folder to the disk") != NULL;
        assert_int_equal(status, FX_STATUS_IO);
        assert_true(holds(path, folder ? 4 : 2));
        failed++;
    }
    assert_true(failed >= 8);
    fxi_file_fault_set(0, EACCES);
    assert_true(fx_is_error(fx_load(path)));
    fxi_file_fault_set(-1, 0);
    assert_non_null(strstr(fx_error_take().message, "cannot open the file: Permission denied"));
    assert_true(fx_is_error(fx_load("/nowhere.safetensors")));
    fx_error_take();
    assert_true(fx_is_error(fx_load(P_tmpdir)));
    assert_non_null(strstr(fx_error_take().message, "Is a directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_files),
        cmocka_unit_test(recorded_values),
        cmocka_unit_test(headers_that_are_wrong),
        cmocka_unit_test(names_are_unescaped),
        cmocka_unit_test(element_types),
        cmocka_unit_test(a_model_comes_back),
        cmocka_unit_test(tied_arrays_have_both_names),
        cmocka_unit_test(what_cannot_be_saved),
        cmocka_unit_test(python_reads_what_is_written),
        cmocka_unit_test(failing_calls_leave_the_old_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
