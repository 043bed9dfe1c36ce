/* test_large_files.c: files of more than 2 GiB: safetensors and checkpoints there and back, BSON
 * refused before anything is written. ctest: full serial native timeout=300
 *
 * The array is mapped to a sparse file, so it takes no memory; the written files have the full
 * size. Without 6 GB free in TMPDIR only the refusal is tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "read_back.h"
#include "temp_file.h"

enum { ROWS = 1 << 15, COLUMNS = (1 << 14) + 1, HEADER = 120 };
static const int64_t LENGTH = (int64_t)ROWS * COLUMNS; /* of Float32: 2 GiB and 128 KiB */
static const int64_t LEAST = ((int64_t)1 << 31) + (1 << 17);

/* Elements that are not 0: at the ends, and around what 31 bits count. */
static const struct {
    int64_t at;
    float value;
} marks[] = {{0, 1.5f},
             {((int64_t)1 << 29) - 1, 2.5f},
             {(int64_t)1 << 29, 3.5f},
             {(int64_t)ROWS * COLUMNS - 1, 4.5f}};
enum { MARKS = sizeof marks / sizeof *marks };

static bool has_disk_space(const char *path)
{
    struct statvfs disk;
    char folder[600];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    return statvfs(folder, &disk) == 0 && (double)disk.f_bavail * (double)disk.f_frsize >= 6e9;
}

/* A file with the array "x", by the description of the format. */
static const char *sparse_file(void)
{
    char head[8 + HEADER + 1] = {HEADER};
    const int n =
        snprintf(head + 8, HEADER + 1,
                 "{\"x\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%lld]}}", COLUMNS,
                 ROWS, (long long)LENGTH * 4);
    memset(head + 8 + n, ' ', (size_t)(HEADER - n));
    const char *path = temp_file("sparse.safetensors", head, 8 + HEADER);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 8 + HEADER + LENGTH * 4), 0);
    for (int i = 0; i < MARKS; i++)
        assert_int_equal(pwrite(fd, &marks[i].value, 4, 8 + HEADER + marks[i].at * 4), 4);
    close(fd);
    return path;
}

static int64_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* The marks are where the data begins according to the header's length. Arrays of larger elements
 * come first, then the others in the order of the arguments. */
static void assert_bytes(const char *path, int64_t before)
{
    uint64_t header;
    float value;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, &header, 8, 0), 8);
    for (int i = 0; i < MARKS; i++) {
        const off_t at = (off_t)(8 + header) + before + marks[i].at * 4;
        assert_int_equal(pread(fd, &value, 4, at), 4);
        assert_true(value == marks[i].value);
    }
    close(fd);
}

static void assert_values(fx_array *x)
{
    assert_int_equal(fx_length(x), LENGTH);
    for (int i = 0; i < MARKS; i++)
        assert_true(fx_at(x, marks[i].at) == marks[i].value);
    assert_true(fx_at(x, 7) == 0 && fx_at(x, LENGTH - 2) == 0);
}

static fx_dense_layer *dense_of(fx_array *x)
{
    return fx_dense(0, 0, .weight_array = x, .bias = false);
}

static void large_files_come_back(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("large.safetensors", "");
    if (!has_disk_space(path)) {
        printf("skipped: files of more than 2 GiB (less than 6 GB of space)\n");
        return;
    }
    fx_array *x = fx_load_key(sparse_file(), "x");
    assert_values(x);
    {
        FX_SCOPE;
        assert_int_equal(fx_save(path, "small", fx_vector(7, 8), "x", x), FX_OK);
        assert_true(size_of(path) > LEAST);
        assert_bytes(path, 8);
        void *file = fx_load(path);
        assert_values(fx_child_named(file, "x"));
        assert_true(fx_at(fx_child_named(file, "small"), 1) == 8);
    }
    unlink(path);
    const fx_dense_layer *m = dense_of(x);
    path = temp_text("large-run.safetensors", "");
    assert_int_equal(fx_checkpoint_save(path, (void *)(uintptr_t)m, .step = 9, .keep = 1), FX_OK);
    assert_true(size_of(path) > LEAST);
    fx_dense_layer *other = dense_of(fx_full(1, ROWS, COLUMNS)); /* freed before it is computed */
    fx_checkpoint_args c = {.fxi_size = sizeof c, .model = other};
    assert_int_equal(fx_checkpoint_load(path, &c), FX_OK);
    assert_int_equal(c.step, 9);
    assert_values(other->weight);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void bson_is_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_load_key(sparse_file(), "x");
    const char *path = temp_text("large.bson", "old");
    assert_int_equal(fx_save(path, "model", dense_of(x)), FX_STATUS_UNSUPPORTED);
    const fx_error error = fx_error_take();
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "the limit of BSON; use "
                                          ".safetensors or a checkpoint"));
    assert_file_is(path, "old");
    assert_alone(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_files_come_back),
                                       cmocka_unit_test(bson_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
