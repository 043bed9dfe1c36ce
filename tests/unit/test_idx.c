/* test_idx.c: IDX files: every element type, plain and gzip, and every kind of damage.
 *
 * Files are made here byte by byte from the format's description; recorded good and bad files, and
 * MNIST itself with the label counts its authors give, are read when CFLUX_DATA has them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "each_allocation.h"
#include "memory.h"
#include "read_back.h"
#include "temp_file.h"

typedef struct sample {
    int code;
    fx_dtype dtype;
    size_t bytes;
    unsigned char one[8], minus_two[8]; /* big-endian; the unsigned type has 254 instead of −2 */
    double second;
} sample;

static const sample SAMPLES[] = {
    {0x08, FX_DTYPE_U8, 1, {1}, {0xFE}, 254},
    {0x09, FX_DTYPE_I32, 1, {1}, {0xFE}, -2},
    {0x0B, FX_DTYPE_I32, 2, {0, 1}, {0xFF, 0xFE}, -2},
    {0x0C, FX_DTYPE_I32, 4, {0, 0, 0, 1}, {0xFF, 0xFF, 0xFF, 0xFE}, -2},
    {0x0D, FX_DTYPE_F32, 4, {0x3F, 0x80, 0, 0}, {0xC0, 0, 0, 0}, -2},
    {0x0E, FX_DTYPE_F64, 8, {0x3F, 0xF0, 0, 0, 0, 0, 0, 0}, {0xC0, 0, 0, 0, 0, 0, 0, 0}, -2},
};

/* 2 × 1 in the file: 1, −2. */
static size_t write_sample(const sample *s, unsigned char *out)
{
    const unsigned char header[] = {0, 0, (unsigned char)s->code, 2, 0, 0, 0, 2, 0, 0, 0, 1};
    memcpy(out, header, sizeof header);
    memcpy(out + sizeof header, s->one, s->bytes);
    memcpy(out + sizeof header + s->bytes, s->minus_two, s->bytes);
    return sizeof header + 2 * s->bytes;
}

static void check_sample(const sample *s, const char *path)
{
    FX_SCOPE;
    fx_array *x = fx_read_idx(path);
    assert_false(fx_is_error(x));
    assert_int_equal(fx_eltype(x), s->dtype);
    assert_int_equal(fx_ndims(x), 2);
    assert_int_equal(fx_size(x, 0), 1); /* the file's last index is the first axis */
    assert_int_equal(fx_size(x, 1), 2);
    assert_true(fx_at(x, 0) == 1);
    assert_true(fx_at(x, 1) == s->second);
}

static void every_type(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++) {
        unsigned char bytes[64];
        const size_t n = write_sample(&SAMPLES[i], bytes);
        check_sample(&SAMPLES[i], temp_file("plain.idx", bytes, n));
        check_sample(&SAMPLES[i], temp_gzip("packed.idx.gz", bytes, n));
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Larger than the pieces it is read in, so that they must be put together in order. */
static void many_pieces(void **state)
{
    (void)state;
    enum { N = 3 * 1024 * 1024 + 5 };
    unsigned char *bytes = malloc(8 + (size_t)N * 2);
    assert_non_null(bytes);
    const unsigned char header[] = {0, 0, 0x0B, 1, 0, N >> 16, (N >> 8) & 0xFF, N & 0xFF};
    memcpy(bytes, header, sizeof header);
    for (size_t i = 0; i < N; i++) {
        bytes[8 + 2 * i] = (unsigned char)((i % 30011) >> 8);
        bytes[9 + 2 * i] = (unsigned char)(i % 30011);
    }
    const char *path = temp_gzip("large.idx.gz", bytes, 8 + (size_t)N * 2);
    free(bytes);
    FX_SCOPE;
    const int32_t *x = fx_data(fx_read_idx(path));
    assert_non_null(x);
    for (int i = 0; i < N; i++)
        if (x[i] != i % 30011)
            fail_msg("element %d is %d", i, x[i]);
}

static void zero_observations(void **state)
{
    (void)state;
    FX_SCOPE;
    const unsigned char bytes[] = {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 28};
    fx_array *x = fx_read_idx(temp_file("none.idx", bytes, sizeof bytes));
    assert_false(fx_is_error(x));
    assert_int_equal(fx_size(x, 0), 28);
    assert_int_equal(fx_size(x, 2), 0);
    assert_int_equal(fx_length(x), 0);
}

static void expect_refusal(const char *path, fx_status status, const char *const *parts)
{
    FX_SCOPE;
    const int64_t live = fxi_live_allocations();
    fx_array *x = fx_read_idx(path);
    assert_true(fx_is_error(x));
    assert_int_equal(fx_array_status(x), status);
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, status);
    assert_string_equal(e.op, "read_idx");
    assert_non_null(strstr(e.message, strrchr(path, '/') + 1));
    for (; parts && *parts; parts++)
        if (!strstr(e.message, *parts))
            fail_msg("\"%s\" does not say \"%s\"", e.message, *parts);
    assert_int_equal(fxi_live_allocations(), live);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define REFUSED(parts, ...)                                                                        \
    expect_refusal(temp_file("bad.idx", (const unsigned char[]){__VA_ARGS__},                      \
                             sizeof((const unsigned char[]){__VA_ARGS__})),                        \
                   FX_STATUS_FORMAT, parts)

static void refusals(void **state)
{
    (void)state;
    REFUSED(PARTS("offset 0", "expected 4 bytes of header", "found 3"), 0, 0, 8);
    REFUSED(PARTS("offset 0", "expected", "found 01 00"), 1, 0, 8, 1, 0, 0, 0, 0);
    REFUSED(PARTS("offset 2", "found 0x0A"), 0, 0, 0x0A, 1, 0, 0, 0, 0);
    REFUSED(PARTS("offset 3", "expected 1 to 8", "found 0"), 0, 0, 8, 0);
    REFUSED(PARTS("offset 3", "expected 1 to 8", "found 9"), 0, 0, 8, 9, 0);
    REFUSED(PARTS("offset 4", "expected 8 bytes of sizes", "found 5"), 0, 0, 8, 2, 0, 0, 0, 1, 0);
    REFUSED(PARTS("offset 8", "expected 3 bytes of data", "found 2"), 0, 0, 8, 1, 0, 0, 0, 3, 7, 7);
    REFUSED(PARTS("offset 11", "expected the end", "found more"), 0, 0, 8, 1, 0, 0, 0, 3, 7, 7, 7,
            7);
    REFUSED(PARTS("offset 4", "2^63"), 0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
            255, 255, 0);
    expect_refusal("/nonexistent/folder/x.idx", FX_STATUS_IO, NULL);
    expect_refusal("/.", FX_STATUS_IO, NULL);
    FX_SCOPE;
    assert_int_equal(fx_array_status(fx_read_idx(NULL)), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

/* Of a gzip file every shorter beginning, and one with a damaged byte, must be refused. */
static void damaged_gzip(void **state)
{
    (void)state;
    unsigned char bytes[8 + 200] = {0, 0, 8, 1, 0, 0, 0, 200};
    for (size_t i = 0; i < 200; i++)
        bytes[8 + i] = (unsigned char)(i * i * 7);
    size_t n;
    char *packed = file_bytes(temp_gzip("whole.gz", bytes, sizeof bytes), &n);
    assert_true(n >= 30);
    for (size_t keep = 0; keep < n; keep++)
        expect_refusal(temp_file("cut.gz", packed, keep), FX_STATUS_FORMAT, NULL);
    packed[n - 6] ^= 0x40; /* in the checksum */
    expect_refusal(temp_file("damaged.gz", packed, n), FX_STATUS_FORMAT, NULL);
    free(packed);
}

static long peak_kib(void)
{
    long kib = -1;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmPeak: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

/* The header declares 4 GB, the file has 100 bytes: no memory is allocated from the header alone.
 */
static void header_is_not_believed(void **state)
{
    (void)state;
    unsigned char bytes[108] = {0, 0, 8, 1, 0xFF, 0xFF, 0xFF, 0xFF};
    const char *path = temp_gzip("liar.gz", bytes, sizeof bytes);
    const long before = peak_kib();
    expect_refusal(path, FX_STATUS_FORMAT,
                   PARTS("offset 8", "expected 4294967295 bytes", "found 100"));
    if (before < 0)
        print_message("skipped: no VmPeak on this system\n");
    else
        assert_true(peak_kib() - before < 64 * 1024);
}

static void *read_file(const char *path)
{
    return fx_read_idx(path);
}

static void each_allocation_fails(void **state)
{
    (void)state;
    unsigned char bytes[64];
    const size_t n = write_sample(&SAMPLES[2], bytes);
    each_allocation_of(read_file, temp_gzip("small.gz", bytes, n), 5);
}

static int for_each_file(const char *folder, void (*check)(const char *path, const char *name))
{
    const char *found = recorded_path(folder);
    char path[1200], base[1024];
    if (!found) {
        print_message("skipped: no %s in CFLUX_DATA\n", folder);
        return -1;
    }
    snprintf(base, sizeof base, "%s", found);
    DIR *dir = opendir(base);
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%.150s", base, entry->d_name);
        check(path, entry->d_name);
        n++;
    }
    closedir(dir);
    return n;
}

static void check_bad(const char *path, const char *name)
{
    (void)name;
    expect_refusal(path, FX_STATUS_FORMAT, PARTS("offset", "expected", "found"));
}

/* The recorded good files are 2×3×4 in file order and count up from 0 (unsigned) or −5. */
static void check_good(const char *path, const char *name)
{
    FX_SCOPE;
    unsigned code = 0;
    assert_int_equal(sscanf(name, "type_%x.idx", &code), 1);
    fx_array *x = fx_read_idx(path);
    assert_false(fx_is_error(x));
    assert_int_equal(fx_ndims(x), 3);
    for (int axis = 0; axis < 3; axis++)
        assert_int_equal(fx_size(x, axis), 4 - axis);
    for (int i = 0; i < 24; i++)
        assert_true(fx_at(x, i) == i - (code == 8 ? 0 : 5));
}

static void recorded_files(void **state)
{
    (void)state;
    const int bad = for_each_file("formats/idx_bad", check_bad),
              good = for_each_file("formats/idx_good", check_good);
    assert_true(bad < 0 || bad >= 9);
    assert_true(good < 0 || good >= 6);
}

static void mnist_labels(void **state)
{
    (void)state;
    static const int64_t counts[10] = {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949};
    const char *path = recorded_path("mnist/train-labels-idx1-ubyte.gz");
    if (!path) {
        print_message("skipped: no mnist in CFLUX_DATA\n");
        return;
    }
    FX_SCOPE;
    fx_array *labels = fx_read_idx(path);
    assert_int_equal(fx_length(labels), 60000);
    const unsigned char *data = fx_data(labels);
    int64_t found[256] = {0};
    for (int i = 0; i < 60000; i++)
        found[data[i]]++;
    for (int i = 0; i < 10; i++)
        assert_int_equal(found[i], counts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(many_pieces),
        cmocka_unit_test(zero_observations),
        cmocka_unit_test(refusals),
        cmocka_unit_test(damaged_gzip),
        cmocka_unit_test(header_is_not_believed),
        cmocka_unit_test(each_allocation_fails),
        cmocka_unit_test(recorded_files),
        cmocka_unit_test(mnist_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
