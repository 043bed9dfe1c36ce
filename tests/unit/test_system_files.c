/* test_system_files.c: files of the system: how they are opened, the facts that the system reports,
 * and their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "read_back.h"
#include "temp_file.h"

static void write_text(int fd, const char *text)
{
    assert_true(fd >= 0);
    assert_int_equal(fxi_os_write(fd, text, strlen(text)), strlen(text));
}

static void modes_say_how_a_file_is_opened(void **state)
{
    (void)state;
    const char *path = temp_text("modes.txt", "first");
    int fd = fxi_os_open(path, FXI_OS_WRITE);
    write_text(fd, "F");
    assert_int_equal(fxi_os_read(fd, &(char){0}, 1), -1);
    assert_int_equal(fxi_os_close(fd), 0);
    assert_file_is(path, "First");
    fd = fxi_os_open(path, FXI_OS_READ_WRITE | FXI_OS_APPEND);
    write_text(fd, "!");
    char last = 0;
    assert_int_equal(fxi_os_read_at(fd, &last, 1, 5), 1);
    assert_int_equal(last, '!');
    assert_int_equal(fxi_os_close(fd), 0);
    assert_file_is(path, "First!");
    assert_int_equal(fxi_os_close(fxi_os_open(path, FXI_OS_WRITE | FXI_OS_EMPTY)), 0);
    assert_file_is(path, "");
    assert_int_equal(fxi_os_remove(path), 0);
    assert_int_equal(fxi_os_open(path, FXI_OS_WRITE), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(fxi_os_close(fxi_os_open(path, FXI_OS_WRITE | FXI_OS_CREATE)), 0);
    assert_true(fxi_file_exists(path));
    assert_int_equal(fxi_os_open(path, FXI_OS_FOLDER), -1);
    const int folder = fxi_os_open("/", FXI_OS_FOLDER);
    assert_true(folder >= 0);
    assert_int_equal(fxi_os_close(folder), 0);
}

static void a_link_is_followed_unless_forbidden(void **state)
{
    (void)state;
    char name[4096], real[FXI_PATH_MOST];
    const char *path = temp_text("linked.txt", "text");
    snprintf(name, sizeof name, "%s.link", path);
    assert_int_equal(symlink(path, name), 0);
    assert_int_equal(fxi_os_open(name, FXI_OS_READ | FXI_OS_NO_LINK), -1);
    const int fd = fxi_os_open(name, FXI_OS_READ);
    assert_true(fd >= 0 && fxi_os_is_named(fd, path));
    assert_int_equal(fxi_os_real_path(name, real), 0);
    assert_true(fxi_os_is_named(fd, real));
    assert_null(strstr(real, ".link"));
    assert_int_equal(fxi_os_remove(name), 0);
    assert_false(fxi_os_is_named(fd, name));
    assert_int_equal(fxi_os_close(fd), 0);
}

static void facts_and_rights(void **state)
{
    (void)state;
    fxi_os_facts facts;
    const char *path = temp_text("facts.txt", "12345"), *other = temp_text("other.txt", "");
    const int fd = fxi_os_open(path, FXI_OS_READ_WRITE);
    assert_int_equal(fxi_os_facts_of(fd, &facts), 0);
    assert_true(facts.regular && !facts.folder && facts.bytes == 5);
    assert_int_equal(fxi_os_resize(fd, 3), 0);
    assert_int_equal(fxi_os_facts_of(fd, &facts), 0);
    assert_int_equal(facts.bytes, 3);
    const char *data = fxi_os_map(fd, 3);
    assert_non_null(data);
    assert_memory_equal(data, "123", 3);
    fxi_os_unmap((void *)(uintptr_t)data, 3);
    assert_null(fxi_os_map(fd, 0));

    struct stat st;
    assert_int_equal(chmod(other, 0640), 0);
    assert_int_equal(fxi_os_copy_rights(fd, other), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(fxi_os_copy_rights(fd, "no such file"), 0);
    assert_int_equal(fxi_os_close(fd), 0);
    assert_int_equal(fxi_os_facts_of(fd, &facts), -1);

    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fxi_os_facts_of(ends[0], &facts), 0);
    assert_false(facts.regular || facts.folder);
    assert_null(fxi_os_map(ends[0], 1));
    close(ends[0]);
    close(ends[1]);
}

static void one_descriptor_has_the_lock(void **state)
{
    (void)state;
    const char *path = temp_text("locked.txt", "");
    const int first = fxi_os_open(path, FXI_OS_WRITE), second = fxi_os_open(path, FXI_OS_WRITE);
    assert_true(fxi_os_lock(first));
    assert_false(fxi_os_lock(second));
    const int copy = fxi_os_duplicate(first);
    assert_int_equal(fxi_os_close(first), 0);
    assert_false(fxi_os_lock(second)); /* the duplicated descriptor holds the lock */
    assert_int_equal(fxi_os_close(copy), 0);
    assert_true(fxi_os_lock(second));
    assert_int_equal(fxi_os_close(second), 0);
}

static bool is_temporary(const char *file, void *user)
{
    (void)user;
    return file[0] != '.';
}

static void a_temporary_file_has_no_name(void **state)
{
    (void)state;
    char folder[4096], text[3] = "";
    snprintf(folder, sizeof folder, "%s.d", temp_text("temporary", ""));
    assert_int_equal(mkdir(folder, 0700), 0);
    const char *before = getenv("TMPDIR");
    char *kept = before ? strdup(before) : NULL;
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    const int fd = fxi_os_open_temporary();
    write_text(fd, "ab");
    assert_false(fxi_folder_each(folder, is_temporary, NULL));
    assert_int_equal(fxi_os_read_at(fd, text, 2, 0), 2);
    assert_string_equal(text, "ab");
    FILE *f = fxi_os_stream(fd, "r");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rmdir(folder), 0);
    kept ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR");
    free(kept);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int no_links;   /* the error of a file system without hard links; 0: the real function */
static int link_calls; /* of the function below */

/* Replaces that of the C library. */
int link(const char *from, const char *to)
{
    link_calls++;
    if (no_links == 0)
        return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = no_links;
    return -1;
}

static void a_second_name_replaces_no_file(void **state)
{
    (void)state;
    static const int errors[] = {0, EPERM, EOPNOTSUPP};
    for (int i = 0; i < 3; i++) {
        char from[4096], to[4096];
        snprintf(from, sizeof from, "%s", temp_text("from.txt", "new"));
        snprintf(to, sizeof to, "%s", temp_text("to.txt", "old"));
        no_links = errors[i];
        assert_int_equal(fxi_os_link(from, to), -1);
        assert_int_equal(errno, EEXIST);
        assert_file_is(to, "old");
        assert_file_is(from, "new");
        assert_int_equal(fxi_os_remove(to), 0);
        assert_int_equal(fxi_os_link("/nowhere/from.txt", to), -1);
        assert_false(fxi_file_exists(to));
        link_calls = 0;
        assert_int_equal(fxi_os_link(from, to), 0);
        assert_int_equal(link_calls, 1); /* the library calls the function of this file */
        assert_file_is(to, "new");
        assert_int_equal(fxi_os_remove(to), 0);
        no_links = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_say_how_a_file_is_opened),
        cmocka_unit_test(a_link_is_followed_unless_forbidden),
        cmocka_unit_test(facts_and_rights),
        cmocka_unit_test(one_descriptor_has_the_lock),
        cmocka_unit_test(a_second_name_replaces_no_file),
        cmocka_unit_test(a_temporary_file_has_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
