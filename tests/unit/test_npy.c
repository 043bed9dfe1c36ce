/* test_npy.c: .npy and .npz files: good ones with recorded values, bad ones, and written files that
 * the library and NumPy read back. */
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
#include "read_back.h"
#include "temp_file.h"
#include "zip_file.h"

static const char *data_file(const char *rest)
{
    char full[300];
    snprintf(full, sizeof full, "formats/%s", rest);
    const char *path = recorded_path(full);
    if (!path)
        fail_msg("%s is missing", full);
    return path;
}

/* ---- files of others ------------------------------------------------------------------------- */

/* The sizes are those of the file from the last to the first; complex numbers are pairs. */
static void check_sizes(const fx_array *x, const cJSON *entry)
{
    const cJSON *shape = cJSON_GetObjectItem(entry, "shape");
    const bool complex = cJSON_GetObjectItem(entry, "dtype")->valuestring[1] == 'c';
    const int n = cJSON_GetArraySize(shape);
    int64_t length = complex ? 2 : 1;
    for (int i = 0; i < n; i++)
        length *= (int64_t)cJSON_GetArrayItem(shape, i)->valuedouble;
    assert_int_equal(fx_length(x), length);
    if (n + complex > FX_MAX_DIMS)
        return;
    assert_int_equal(fx_ndims(x), n + complex);
    for (int i = 0; i < n; i++)
        assert_int_equal(fx_size(x, complex + n - 1 - i),
                         (int64_t)cJSON_GetArrayItem(shape, i)->valuedouble);
}

static int check_values(fx_array *x, const char *path, const cJSON *values)
{
    int i = 0;
    cJSON *each;
    cJSON_ArrayForEach(each, values)
    {
        const double v = fx_at(x, i), e = cJSON_IsNumber(each) ? each->valuedouble : NAN;
        if (!(v == e || (isnan(v) && isnan(e)) || fabs(v - e) < 1e-15 * fabs(e)))
            fail_msg("%s: element %d is %.17g, expected %.17g", path, i, v, e);
        i++;
    }
    return i;
}

/* The index has NaN and Infinity, which are not valid JSON. */
static void good_files(void **state)
{
    (void)state;
    cJSON *index = data_index("formats/npy/good_index.json");
    if (!index) {
        printf("skipped: no recorded NumPy files\n");
        return;
    }
    int files = 0, values = 0;
    cJSON *each;
    cJSON_ArrayForEach(each, index)
    {
        FX_SCOPE;
        const char *path = data_file(cJSON_GetObjectItem(each, "file")->valuestring);
        fx_array *x = fx_load(path);
        if (fx_is_error(x))
            fail_msg("%s", fx_error_take().message);
        check_sizes(x, each);
        values += check_values(x, path, cJSON_GetObjectItem(each, "values"));
        files++;
    }
    cJSON_Delete(index);
    assert_true(files >= 51);
    assert_true(values >= 400);
}

static void orders_give_one_array(void **state)
{
    (void)state;
    FX_SCOPE;
    if (!recorded_path("formats/npy/good/le_f4_c.npy")) {
        printf("skipped: no recorded NumPy files\n");
        return;
    }
    static const char *const types[] = {"le_f4", "be_f8",  "le_f2", "be_i2", "le_u8",
                                        "le_c8", "le_c16", "na_b1", "na_i1"};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        char c[100], f[100];
        snprintf(c, sizeof c, "npy/good/%s_c.npy", types[t]);
        snprintf(f, sizeof f, "npy/good/%s_f.npy", types[t]);
        fx_array *x = fx_load(data_file(c)), *y = fx_load(data_file(f));
        assert_int_equal(fx_ndims(x), fx_ndims(y));
        for (int64_t i = 0; i < fx_length(x); i++)
            assert_true(fx_at(x, i) == fx_at(y, i));
    }
    fx_array *complex = fx_load(data_file("npy/good/le_c8_c.npy"));
    assert_int_equal(fx_size(complex, 0), 2);
    assert_true(fx_at(complex, 0) != 0);
}

static void bad_files(void **state)
{
    (void)state;
    cJSON *index = data_index("formats/npy/bad_index.json");
    if (!index) {
        printf("skipped: no recorded NumPy files\n");
        return;
    }
    int files = 0;
    cJSON *each;
    cJSON_ArrayForEach(each, index)
    {
        FX_SCOPE;
        const char *path = data_file(each->string);
        assert_true(fx_is_error(fx_load(path)));
        const fx_error error = fx_error_take();
        assert_int_equal(error.status, FX_STATUS_FORMAT);
        assert_non_null(strstr(error.message, path));
        assert_non_null(strstr(error.message, ": npy: offset "));
        files++;
    }
    cJSON_Delete(index);
    assert_true(files >= 25);
}

static void archives(void **state)
{
    (void)state;
    FX_SCOPE;
    if (!recorded_path("formats/npy/npz/stored.npz")) {
        printf("skipped: no recorded NumPy archives\n");
        return;
    }
    void *stored = fx_load(data_file("npy/npz/stored.npz"));
    void *deflated = fx_load(data_file("npy/npz/deflated.npz"));
    assert_true(fx_count(stored) >= 2);
    assert_int_equal(fx_count(stored), fx_count(deflated));
    for (int64_t i = 0; i < fx_count(stored); i++) {
        fx_array *x = fx_child(stored, i);
        fx_array *y = fx_child_named(deflated, fx_child_name(stored, i));
        assert_int_equal(fx_length(x), fx_length(y));
        for (int64_t k = 0; k < fx_length(x); k++)
            assert_true(fx_at(x, k) == fx_at(y, k));
    }
    void *empty = fx_load(data_file("npy/npz/empty.npz"));
    assert_false(fx_is_error(empty));
    assert_int_equal(fx_count(empty), 0);
    assert_true(fx_is_error(fx_load(data_file("npy/npz_bad/flipped_byte60.npz"))));
    assert_non_null(strstr(fx_error_take().message, ": npz: offset "));
    assert_true(fx_is_error(fx_load(data_file("npy/npz_bad/truncated_half.npz"))));
    assert_non_null(strstr(fx_error_take().message, "the file is truncated"));
}

/* ---- headers --------------------------------------------------------------------------------- */

static const char *made(const char *dictionary, size_t data)
{
    char bytes[1000] = "\x93NUMPY\1\0";
    const size_t n = strlen(dictionary) + 1;
    bytes[8] = (char)n;
    snprintf(bytes + 10, sizeof bytes - 10, "%s\n", dictionary);
    return temp_file("made.npy", bytes, 10 + n + data);
}

static void refused(const char *dictionary, size_t data, const char *reason)
{
    FX_SCOPE;
    assert_true(fx_is_error(fx_load(made(dictionary, data))));
    const fx_error error = fx_error_take();
    if (error.status != FX_STATUS_FORMAT || !strstr(error.message, reason))
        fail_msg("\"%s\" is not in \"%s\"", reason, error.message);
}

#define DICT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}"

static void headers_that_are_wrong(void **state)
{
    (void)state;
    refused(DICT("'<f4'", "False", "(2,)"), 9, "1 bytes follow the elements");
    refused(DICT("'<f4'", "False", "(2,)"), 7, "expected 8 bytes, 7 are left");
    refused(DICT("'|O'", "False", "(2,)"), 8, "Python objects are not loaded");
    refused(DICT("'<U4'", "False", "(2,)"), 8, "the element type is '<U4', expected numbers");
    refused(DICT("[('x', '<f4')]", "False", "(2,)"), 8, "expected a text in quotes");
    refused(DICT("'<f4'", "False", "(2"), 8, "expected ','");
    refused(DICT("'<f4'", "False", "(,)"), 8, "expected a size");
    refused(DICT("'<f4'", "false", "(2,)"), 8, "expected True or False");
    refused(DICT("'<f4'", "False", "(99999999999999999999,)"), 8, "is above 9223372036854775807");
    refused(DICT("'<f4'", "False", "(0, 4611686018427387904)"), 0, "is 2^59 bytes or more");
    refused(DICT("'<f4'", "True", "(4611686018427387904, 0)"), 0, "is 2^59 bytes or more");
    refused(DICT("'|i1'", "False", "(0, 288230376151711744)"), 0, "is 2^59 bytes or more");
    refused("{'shape': (1,), 'shape': (1,)}", 8, "\"shape\" appears twice");
    refused(DICT("'<f4'", "False", "(2,)") " x", 8, "more text after");
    refused("{}", 8, "lacks its descr");
    refused("{'descr': '<f4'", 8, "expected ','");
    refused("{'descr': '<f4", 8, "not closed");
}

/* ---- writing --------------------------------------------------------------------------------- */

static void numpy_prints(const char *python, const char *path, const char *expected)
{
    char command[1200], out[2000];
    snprintf(command, sizeof command, "%s -B tests/support/read_numpy.py '%s'", python, path);
    FILE *p = popen(command, "r");
    const size_t n = fread(out, 1, sizeof out - 1, p);
    out[n] = 0;
    assert_int_equal(pclose(p), 0);
    assert_string_equal(out, expected);
}

static void numpy_reads_what_is_written(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *python = python_that("-c 'import numpy'");
    if (!python) {
        printf("skipped: NumPy is not installed\n");
        return;
    }
    const char *one = temp_text("ours.npy", ""), *many = temp_text("ours.npz", "");
    fx_array *x = fx_reshape(fx_range(0, 1, 6), 3, 2);
    assert_int_equal(fx_save(one, "x", x), FX_OK);
    numpy_prints(python, one, "float32 (2, 3) [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n");
    const bool flags[] = {true, false};
    assert_int_equal(fx_save(many, "x", x, "m", fx_tuple(fx_range_dtype(FX_DTYPE_I64, -1, 1, 3)),
                             "flags", fx_from(FX_DTYPE_BOOL, flags, 2), "scalar", fx_scalar(2.5),
                             "none", fx_zeros(0, 4), "half", fx_cast(x, FX_DTYPE_F16), "\xC3\xA9",
                             fx_range_dtype(FX_DTYPE_U8, 250, 1, 3)),
                     FX_OK);
    numpy_prints(python, many,
                 "x float32 (2, 3) [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"
                 "m.0 int64 (3,) [-1, 0, 1]\n"
                 "flags bool (2,) [True, False]\n"
                 "scalar float32 () [2.5]\n"
                 "none float32 (4, 0) []\n"
                 "half float16 (2, 3) [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"
                 "\xC3\xA9 uint8 (3,) [250, 251, 252]\n");
}

static void a_model_comes_back(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_chain(fx_dense(3, 4, FX_TANH), fx_dense(4, 2)),
         *other = fx_chain(fx_dense(3, 4, FX_TANH), fx_dense(4, 2));
    const char *path = temp_text("model.npz", "");
    assert_int_equal(fx_save(path, "model", m), FX_OK);
    assert_int_equal(fx_load_into(path, "model", other), FX_OK);
    fx_array *x = fx_destructure(m), *y = fx_destructure(other);
    for (int64_t i = 0; i < fx_length(x); i++)
        assert_true(fx_at(x, i) == fx_at(y, i));
    const char *none = temp_text("none.npz", "");
    assert_int_equal(fxi_save(none, 0, NULL), FX_OK);
    assert_int_equal(fx_count(fx_load(none)), 0);
    assert_int_equal(fx_save(none, "x", fx_cast(x, FX_DTYPE_BF16)), FX_STATUS_DTYPE);
    assert_non_null(strstr(fx_error_take().message, "NumPy has no BFloat16"));
    assert_int_equal(fx_save(temp_text("two.npy", ""), "m", m), FX_STATUS_ARGUMENT);
    assert_non_null(
        strstr(fx_error_take().message, "can hold one array and no texts, got 4 arrays"));
    assert_int_equal(fx_count(fx_load(none)), 0);
}

/* Texts are a member of bytes: what NumPy sees, and what comes back. */
static void texts_come_back(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("texts.npz", "");
    void *texts = fx_metadata("a", "\xC3\xA9\"\n", "", "empty key", "b", "");
    assert_int_equal(fx_save(path, "x", fx_vector(1, 2), "", texts), FX_OK);
    void *file = fx_load(path), *again = fx_child_named(file, "__metadata__");
    assert_int_equal(fx_count(file), 2);
    assert_int_equal(fx_metadata_count(again), 3);
    assert_string_equal(fx_metadata_text(again, "a"), "\xC3\xA9\"\n");
    assert_string_equal(fx_metadata_text(again, ""), "empty key");
    assert_string_equal(fx_metadata_text(again, "b"), "");
    assert_non_null(fx_metadata_key(again, 2));
    assert_null(fx_metadata_key(again, 3));
    assert_null(fx_metadata_key(again, -1));
    assert_true(fx_at(fx_child_named(file, "x"), 1) == 2);
    const char *python = python_that("-c 'import numpy'");
    if (python) {
        assert_int_equal(fx_save(path, "", fx_metadata("a", "b")), FX_OK);
        numpy_prints(python, path,
                     "__metadata__ uint8 (9,) [123, 34, 97, 34, 58, 34, 98, 34, 125]\n");
    }
    /* An array must not have the name of the texts, and a text that no file can hold is refused. */
    assert_int_equal(fx_save(path, "__metadata__", fx_vector(1), "", texts), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "two arrays would be called"));
    assert_int_equal(fx_save(path, "", fx_metadata("a", "\xFF")), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "not UTF-8"));
    assert_int_equal(fx_save(path, "x", fx_vector(1), "", fxi_metadata(0, NULL)), FX_OK);
    assert_int_equal(fx_count(fx_load(path)), 1);
}

static void *load_zip(const zip_member *members, int n)
{
    size_t bytes;
    return fx_load(temp_zip("members.npz", members, n, &bytes));
}

/* As in NumPy: z["a"] is the member "a" if there is one, and z["a.npy"] is found in any case. */
static void members_with_similar_names(void **state)
{
    (void)state;
    FX_SCOPE;
    size_t n, bytes;
    const char *path = temp_text("number.npy", "");
    assert_int_equal(fx_save(path, "x", fx_vector(1)), FX_OK);
    char *one = file_bytes(path, &n);
    assert_int_equal(fx_save(path, "x", fx_vector(2)), FX_OK);
    char *two = file_bytes(path, &bytes);
    assert_int_equal(bytes, n);
    for (int i = 0; i < 2; i++) {
        const zip_member whole = {.name = "a", .data = one, .size = n},
                         npy = {.name = "a.npy", .data = two, .size = n};
        void *file = load_zip((const zip_member[]){i ? npy : whole, i ? whole : npy}, 2);
        assert_int_equal(fx_count(file), 2);
        assert_true(fx_at(fx_child_named(file, "a"), 0) == 1);
        assert_true(fx_at(fx_child_named(file, "a.npy"), 0) == 2);
    }
    static const struct {
        const char *names[3], *error;
    } bad[] = {{{"a.npy", "b", "a.npy"}, "two members are called \"a\""},
               {{"a", "b", "a"}, "two members are called \"a\""},
               {{"a", "a.npy", "a.npy.npy"}, "two members are called \"a.npy\""},
               {{"a", "", "b"}, "a member has no name"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        zip_member members[3];
        for (int k = 0; k < 3; k++)
            members[k] = (zip_member){.name = bad[i].names[k], .data = one, .size = n};
        void *file = load_zip(members, 3);
        assert_true(fx_is_error(file));
        assert_int_equal(fx_array_status(file), FX_STATUS_FORMAT);
        assert_non_null(strstr(fx_error_take().message, bad[i].error));
    }
    free(one);
    free(two);
    /* A name that ends in ".npy" comes back from a file of cflux. */
    path = temp_text("names.npz", "");
    assert_int_equal(fx_save(path, "a", fx_vector(1), "a.npy", fx_vector(2)), FX_OK);
    assert_true(fx_at(fx_load_key(path, "a"), 0) == 1);
    assert_true(fx_at(fx_child_named(fx_load(path), "a.npy"), 0) == 2);
}

static void failures(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("faults.npz", "");
    fx_array *x = fx_vector(1, 2), *old = fx_vector(5);
    assert_int_equal(fx_eval(fx_tuple(x, old)), FX_OK);
    int failed = 0;
    for (int64_t k = 0;; k++) {
        assert_int_equal(fx_save(path, "x", old), FX_OK);
        fxi_file_fault_set(k, ENOSPC);
        const fx_status status = fx_save(path, "x", x, "y", old);
        const bool done = fxi_file_fault_seen() <= k;
        fxi_file_fault_set(-1, 0);
        const fx_error error = fx_error_take();
        const bool folder = strstr(error.message, "folder to the disk") != NULL;
        assert_int_equal(status, done ? FX_OK : FX_STATUS_IO);
        assert_true(fx_at(fx_load_key(path, "x"), 0) == (done || folder ? 1 : 5));
        if (done)
            break;
        assert_non_null(
            strstr(error.message, folder ? "new file is in place" : "old file is unch"));
        failed++;
    }
    assert_true(failed >= 8);
}

/* Each byte of an archive changed, each length cut: an error or the same arrays, nothing else. */
static void damage_is_found(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("whole.npz", "");
    assert_int_equal(fx_save(path, "x", fx_vector(1, 2, 3), "y", fx_zeros(2)), FX_OK);
    size_t n;
    char *bytes = file_bytes(path, &n);
    assert_true(n > 400);
    int refusals = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        FX_SCOPE;
        const bool cut = i >= n;
        if (!cut)
            bytes[i] = (char)(bytes[i] ^ 0x15);
        void *file = fx_load(temp_file("damaged.npz", bytes, cut ? i - n : n));
        if (!cut)
            bytes[i] = (char)(bytes[i] ^ 0x15);
        refusals += fx_is_error(file);
        fx_error_take();
        if (cut)
            assert_true(fx_is_error(file));
        for (int64_t k = 0; !fx_is_error(file) && k < fx_count(file); k++)
            assert_true(fx_length(fx_child(file, k)) == 3 ? fx_at(fx_child(file, k), 2) == 3
                                                          : fx_at(fx_child(file, k), 1) == 0);
    }
    free(bytes);
    assert_true(refusals > (int)n + 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),
        cmocka_unit_test(orders_give_one_array),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(archives),
        cmocka_unit_test(headers_that_are_wrong),
        cmocka_unit_test(numpy_reads_what_is_written),
        cmocka_unit_test(a_model_comes_back),
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(members_with_similar_names),
        cmocka_unit_test(failures),
        cmocka_unit_test(damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
