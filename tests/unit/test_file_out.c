/* test_file_out.c: a file is written whole or not at all: every system call failing in turn, links,
 * rights, writers at the same time, and processes that are killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux/base.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "file_out.h"
#include "memory.h"
#include "read_back.h"
#include "temp_file.h"

static void it_replaces_the_file(void **state)
{
    (void)state;
    const char *path = temp_text("whole.txt", "old");
    assert_int_equal(fxi_file_write("test", path, "new text", 8), FX_OK);
    assert_file_is(path, "new text");
    assert_alone(path);
    assert_int_equal(fxi_file_write("test", path, "", 0), FX_OK);
    assert_file_is(path, "");
}

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EINTR, FXI_FILE_SHORT};
    int failed = 0, went_on = 0, in_place = 0;
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
        for (int64_t k = 0;; k++) {
            const char *path = temp_text("faults.txt", "the old text");
            fxi_file_fault_set(k, errors[e]);
            const fx_status status = fxi_file_write("test", path, "a new one", 9);
            const int64_t seen = fxi_file_fault_seen();
            fxi_file_fault_set(-1, 0);
            assert_alone(path);
            const fx_error error = fx_error_take();
            if (seen <= k) { /* there was no call with this number */
                assert_int_equal(status, FX_OK);
                assert_file_is(path, "a new one");
                break;
            }
            assert_int_equal(error.status, status);
            failed += status != FX_OK;
            went_on += status == FX_OK;
            if (status == FX_OK) {
                assert_file_is(path, "a new one");
                continue;
            }
            assert_int_equal(status, FX_STATUS_IO);
            assert_non_null(strstr(error.message, path));
            const bool open = !strstr(error.message, "cannot create a file") &&
                              !strstr(error.message, "cannot prepare");
            assert_int_equal(strstr(error.message, "offset ") != NULL, open);
            assert_non_null(strstr(error.message, strerror(errors[e])));
            /* If a call after the rename fails, the new text is in place. */
            const bool folder = strstr(error.message, "folder to the disk") != NULL;
            assert_file_is(path, folder ? "a new one" : "the old text");
            assert_non_null(strstr(error.message, folder ? "; the new file is in place but may not "
                                                           "survive a power failure"
                                                         : "; the old file is unchanged"));
            in_place += folder;
        }
    assert_true(failed >= 12); /* open, write, fsync, close, rename, open and fsync of the folder */
    assert_true(went_on >= 8); /* interrupted and short calls */
    assert_true(in_place >= 4);
}

static void allocations_fail_in_turn(void **state)
{
    (void)state;
    const char *path = temp_text("memory.txt", "old");
    int failed = 0;
    for (int64_t k = 0;; k++) {
        fxi_fault_set(k);
        const fx_status status = fxi_file_write("test", path, "new", 3);
        const bool done = fxi_fault_seen() <= k;
        fxi_fault_set(-1);
        assert_alone(path);
        if (done)
            break;
        assert_int_equal(status, FX_STATUS_MEMORY);
        assert_int_equal(fx_error_take().status, FX_STATUS_MEMORY);
        failed++;
    }
    assert_true(failed >= 2);
}

static void what_cannot_be_written_says_why(void **state)
{
    (void)state;
    assert_int_equal(fxi_file_write("test", "/nowhere/at all.txt", "x", 1), FX_STATUS_IO);
    assert_string_equal(fx_error_take().message,
                        "test: /nowhere/at all.txt: cannot create a file in that folder: "
                        "No such file or directory");
    assert_int_equal(fxi_file_write("test", "", "x", 1), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    fxi_file_out f;
    const char *path = temp_text("kept.txt", "old");
    assert_int_equal(fxi_file_out_open(&f, "test", path), FX_OK);
    fxi_file_out_write(&f, "half", 4);
    assert_int_equal(fxi_file_out_close(&f, FX_STATUS_SHAPE), FX_STATUS_SHAPE);
    assert_file_is(path, "old");
    assert_alone(path);
}

/* Bytes that do not repeat from piece to piece. */
static unsigned char at_offset(size_t i)
{
    return (unsigned char)(i * 7 + (i >> 12) * 13 + (i >> 20));
}

/* A file of several pieces, from writes of all sizes, with interruptions: nothing is lost, the file
 * occupies no more of the disk than it needs, and the checksum is zlib's. */
static void large_files_are_written_in_pieces(void **state)
{
    (void)state;
    enum { BYTES = 9000001 };
    static const size_t sizes[] = {5000000, 1, 3999990,
                                   10}; /* the first write crosses the end of a piece */
    static const int errors[] = {EINTR, FXI_FILE_SHORT, ENOSPC};
    unsigned char *data = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = at_offset(i);
    const char *path = temp_text("large", "old");
    int whole = 0, refused = 0;
    for (size_t e = 0; e < 3; e++)
        for (int64_t k = 1; k < 6; k++) {
            fxi_file_out f;
            struct stat st;
            fxi_file_fault_set(k, errors[e]);
            fxi_file_out_open(&f, "test", path);
            f.sum = true;
            for (size_t i = 0, at = 0; i < 4; at += sizes[i++])
                fxi_file_out_write(&f, data + at, sizes[i]);
            const uint32_t crc = f.crc;
            const fx_status status = fxi_file_out_close(&f, FX_OK);
            fxi_file_fault_set(-1, 0);
            fx_error_take();
            assert_alone(path);
            refused += status != FX_OK;
            if (status != FX_OK)
                continue;
            size_t n;
            unsigned char *back = (unsigned char *)file_bytes(path, &n);
            assert_int_equal(n, BYTES);
            assert_memory_equal(back, data, BYTES);
            free(back);
            assert_int_equal(crc, crc32_z(0, data, BYTES));
            assert_int_equal(stat(path, &st), 0);
            assert_true(st.st_blocks * 512 < BYTES + 1000000);
            whole++;
        }
    assert_int_equal(whole, 10);
    assert_int_equal(refused, 5);
    free(data);
}

static void links_and_rights_stay(void **state)
{
    (void)state;
    const char *path = temp_text("rights.txt", "old");
    char link[600];
    snprintf(link, sizeof link, "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(fxi_file_write("test", link, "new", 3), FX_OK);
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_file_is(path, "new");
    unlink(link);
}

/* A temporary file that a killed process has left is overwritten. */
static void a_left_over_is_used_again(void **state)
{
    (void)state;
    const char *path = temp_text("left.txt", "old");
    temp_text("left.txt.tmp0", "a long text that was not written completely");
    assert_int_equal(fxi_file_write("test", path, "new", 3), FX_OK);
    assert_file_is(path, "new");
    assert_alone(path);
}

enum { WRITERS = 4, TIMES = 50, LETTERS = 3000 };

static void *write_often(void *arg)
{
    const char *const *job = arg;
    intptr_t bad = 0;
    for (int i = 0; i < TIMES; i++)
        bad += fxi_file_write("test", job[0], job[1], LETTERS) != FX_OK;
    return (void *)bad;
}

static void writers_do_not_mix(void **state)
{
    (void)state;
    const char *path = temp_text("many.txt", "old");
    char letters[WRITERS][LETTERS];
    const char *jobs[WRITERS][2];
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        memset(letters[i], 'a' + i, LETTERS);
        jobs[i][0] = path;
        jobs[i][1] = letters[i];
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, jobs[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    size_t n;
    char *now = file_bytes(path, &n);
    assert_int_equal(n, LETTERS);
    for (int i = 1; i < LETTERS; i++)
        assert_int_equal(now[i], now[0]);
    free(now);
    assert_alone(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_replaces_the_file),
        cmocka_unit_test(every_call_fails_in_turn),
        cmocka_unit_test(allocations_fail_in_turn),
        cmocka_unit_test(what_cannot_be_written_says_why),
        cmocka_unit_test(large_files_are_written_in_pieces),
        cmocka_unit_test(links_and_rights_stay),
        cmocka_unit_test(a_left_over_is_used_again),
        cmocka_unit_test(writers_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
