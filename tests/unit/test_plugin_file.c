/* test_plugin_file.c: one search and one check for both kinds of plugin: what is rejected and with
 * which message, the order of the folders, the environment variable, explicit paths, and the list
 * of plugins. The plugins are heads without functions (standin/head_plugin.c). ctest: devices */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu_plugin.h"
#include "plugin_file.h"
#include "standin.h"
#include "temp_file.h"

#define HEADS CFLUX_BUILD_DIR "/tests/heads/"

/* ---- what is said ---------------------------------------------------------------------------- */

static char said[8000]; /* one line for each message */
static int messages;

static void listen(int level, const char *text, void *user)
{
    (void)user;
    assert_int_equal(level, 1);
    messages++;
    const size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s\n", text);
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* From here on plugins are searched in these folders, and no message has been sent. */
static void look_in(const char *folders)
{
    setenv("FX_PLUGIN_PATH", folders, 1);
    unsetenv("CFLUX_BACKEND_PATH");
    messages = 0;
    *said = 0;
    fxi_cpu_plugin_reset();
}

static void look_in_head(const char *variant)
{
    char folder[600];
    snprintf(folder, sizeof folder, HEADS "%s", variant);
    look_in(folder);
}

/* ---- both kinds ------------------------------------------------------------------------------ */

/* The same plugin as a backend and as a kernel library. */
static const struct kind {
    fx_plugin_kind kind;
    const char *name, *serves, *file, *kind_text, *other_kind_text;
} kinds[] = {{FX_PLUGIN_BACKEND, "Metal", NULL, "libcflux-metal.so", "backend", "kernel library"},
             {FX_PLUGIN_KERNEL_LIBRARY, "oneDNN", "CPU", "libcflux-cpu-onednn.so", "kernel library",
              "backend"}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static char why[FXI_PLUGIN_WHY];

static fxi_plugin_result find_at(const struct kind *k, const char *path, const fx_plugin_head **out)
{
    static const uint32_t sizes[] = FX_PLUGIN_SIZES_HERE(fx_plugin_head, fx_host);
    const fxi_plugin_request request = {
        .kind = k->kind, .name = k->name, .serves = k->serves, .sizes = sizes, .path = path};
    return fxi_plugin_find(&request, out, why, sizeof why);
}

static fxi_plugin_result find(const struct kind *k, const fx_plugin_head **out)
{
    return find_at(k, NULL, out);
}

/* The reason in a row: %k is the kind, %o the other one, %a our ABI number, %b the next. */
static void expand(const char *pattern, const struct kind *k, char *out, size_t size)
{
    size_t n = 0;
    for (const char *c = pattern; *c && n + 1 < size; c++) {
        if (*c != '%') {
            out[n++] = *c;
            continue;
        }
        c++;
        const int wrote = *c == 'k' ? snprintf(out + n, size - n, "%s", k->kind_text)
                          : *c == 'o'
                              ? snprintf(out + n, size - n, "%s", k->other_kind_text)
                              : snprintf(out + n, size - n, "%d", FX_PLUGIN_ABI + (*c == 'b'));
        n += (size_t)wrote;
    }
    out[n] = 0;
}

static const struct row {
    const char *variant, *reason;
    bool kernel_only;
} rejected[] = {
    {"other_abi", "it was built for %k ABI %b, but this cflux has ABI %a: rebuild it", false},
    {"former", "it was built for %k ABI 2, but this cflux has ABI %a: rebuild it", false},
    {"other_kind", "it is a %o, not a %k", false},
    {"other_sizes", "the sizes of its structs differ from this cflux's: rebuild it", false},
    {"no_symbol", "it does not export fx_plugin", false},
    {"no_name", "it has no name", false},
    {"wrong_name", "it identifies itself as the %k Quartz", false},
    {"needs_library", "it cannot be opened: libfake_library.so", false},
    {"wrong_serves", "it identifies itself as a plugin for Abacus", true}};
enum { REJECTED = sizeof rejected / sizeof rejected[0] };

static void is_rejected(const struct kind *k, const struct row *row)
{
    char reason[300], line[1000];
    const fx_plugin_head *p;
    look_in_head(row->variant);
    assert_int_equal(find(k, &p), FXI_PLUGIN_REJECTED);
    assert_null(p);
    expand(row->reason, k, reason, sizeof reason);
    snprintf(line, sizeof line, HEADS "%s/%s is ignored: %s", row->variant, k->file, reason);
    assert_int_equal(strncmp(why, line, strlen(line)), 0);
    char absent[200]; /* the other candidates, of which the first is beside this program */
    snprintf(absent, sizeof absent, "; there is no %s in ", k->file);
    has(why, absent);
    has(strstr(why, absent), "/tests, ");
    assert_int_equal(messages, 1);
    assert_int_equal(strncmp(said, line, strlen(line)), 0);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void what_is_rejected_says_why(void **state)
{
    (void)state;
    int checked = 0;
    for (int i = 0; i < KINDS; i++)
        for (int j = 0; j < REJECTED; j++)
            if (!rejected[j].kernel_only || kinds[i].serves) {
                is_rejected(&kinds[i], &rejected[j]);
                checked++;
            }
    assert_true(checked >= 17);
}

/* fx_why_not and fx_plugins return the same messages. */
static void programs_are_told_the_same(void **state)
{
    (void)state;
    static const int rows[] = {0, 1, 2, 4, 7};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < KINDS; k++) {
            char reason[300];
            look_in_head(rejected[rows[i]].variant);
            expand(rejected[rows[i]].reason, &kinds[k], reason, sizeof reason);
            if (!kinds[k].serves)
                assert_int_equal(fx_use("Metal"), FX_STATUS_DEVICE);
            has(fx_why_not(kinds[k].serves ? "CPU:oneDNN" : "Metal"), reason);
            assert_int_equal(messages, 1);
        }
}

static void one_that_is_missing_is_silent(void **state)
{
    (void)state;
    const fx_plugin_head *p;
    look_in(CFLUX_BUILD_DIR "/nowhere:" CFLUX_BUILD_DIR "/neither");
    for (int i = 0; i < KINDS; i++) {
        char text[300];
        assert_int_equal(find(&kinds[i], &p), FXI_PLUGIN_ABSENT);
        snprintf(text, sizeof text,
                 "it is not installed: there is no %s in " CFLUX_BUILD_DIR
                 "/nowhere, " CFLUX_BUILD_DIR "/neither, ",
                 kinds[i].file);
        assert_int_equal(strncmp(why, text, strlen(text)), 0);
    }
    has(fx_why_not("CPU:oneDNN"), "there is no libcflux-cpu-onednn.so in ");
    assert_int_equal(messages, 0);
}

/* ---- where ----------------------------------------------------------------------------------- */

static char visited[20][PATH_MAX];
static int visits;

static bool visit(const char *folder, void *user)
{
    (void)user;
    assert_true(visits < 20);
    snprintf(visited[visits++], PATH_MAX, "%s", folder);
    return false;
}

static void the_folders_have_an_order(void **state)
{
    (void)state;
    char program[PATH_MAX], below[PATH_MAX + 8];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(n > 0);
    program[n] = 0;
    *strrchr(program, '/') = 0;
    snprintf(below, sizeof below, "%s/cflux", program);
    look_in("/one::/two:");
    visits = 0;
    assert_false(fxi_plugin_folders(visit, NULL));
    assert_int_equal(visits, 5);
    assert_string_equal(visited[0], "/one");
    assert_string_equal(visited[1], "/two");
    /* The library is linked into this program. */
    char real[PATH_MAX];
    assert_non_null(realpath(visited[2], real));
    assert_string_equal(real, program);
    has(visited[3], "/cflux");
    assert_int_equal(strncmp(visited[3], visited[2], strlen(visited[2])), 0);
    assert_string_equal(visited[4], fxi_installed_plugins);
    assert_string_equal(visited[4], CFLUX_BUILD_DIR "/not_installed");
}

/* A rejected file does not hide a good one after it, and a good one hides what is after it. */
static void the_search_goes_on(void **state)
{
    (void)state;
    const fx_plugin_head *p, *again;
    for (int i = 0; i < KINDS; i++) {
        look_in(HEADS "nowhere:" HEADS "other_abi:" HEADS "works:" HEADS "no_name");
        assert_int_equal(find(&kinds[i], &p), FXI_PLUGIN_TAKEN);
        assert_string_equal(p->name, kinds[i].name);
        assert_string_equal(p->version, "0.0.1");
        assert_string_equal(why, "");
        assert_int_equal(messages, 1);
        has(said, HEADS "other_abi/");
        look_in(HEADS "works:" HEADS "other_abi");
        assert_int_equal(find(&kinds[i], &again), FXI_PLUGIN_TAKEN);
        assert_ptr_equal(again, p);
        assert_int_equal(messages, 0);
    }
}

static void one_variable_serves_both_kinds(void **state)
{
    (void)state;
    const fx_plugin_head *p;
    /* The former one works as well, for both; a message says once what it is called now. */
    for (int i = 0; i < KINDS; i++) {
        look_in("");
        messages = i;
        setenv("CFLUX_BACKEND_PATH", HEADS "works", 1);
        assert_int_equal(find(&kinds[i], &p), FXI_PLUGIN_TAKEN);
        assert_int_equal(messages, 1);
        if (i == 0)
            has(said, "CFLUX_BACKEND_PATH was renamed: set FX_PLUGIN_PATH instead");
        look_in(CFLUX_BUILD_DIR "/nowhere"); /* where both are set, the new one counts */
        setenv("CFLUX_BACKEND_PATH", HEADS "works", 1);
        assert_int_equal(find(&kinds[i], &p), FXI_PLUGIN_ABSENT);
        look_in_head("works");
        assert_int_equal(find(&kinds[i], &p), FXI_PLUGIN_TAKEN);
        assert_int_equal(messages, 0);
    }
}

static void a_path_is_the_only_candidate(void **state)
{
    (void)state;
    const fx_plugin_head *p;
    look_in_head("works");
    for (int i = 0; i < KINDS; i++) {
        char path[600];
        snprintf(path, sizeof path, HEADS "other_abi/%s", kinds[i].file);
        assert_int_equal(find_at(&kinds[i], path, &p), FXI_PLUGIN_REJECTED);
        has(why, path);
        assert_null(strstr(why, "there is no")); /* no folder was searched */
        snprintf(path, sizeof path, HEADS "nowhere/%s", kinds[i].file);
        assert_int_equal(find_at(&kinds[i], path, &p), FXI_PLUGIN_ABSENT);
        has(why, path);
        snprintf(path, sizeof path, HEADS "works/%s", kinds[i].file);
        look_in("");
        assert_int_equal(find_at(&kinds[i], path, &p), FXI_PLUGIN_TAKEN);
        assert_int_equal(messages, 0);
    }
}

static void fx_use_takes_a_path(void **state)
{
    (void)state;
    look_in(CFLUX_BUILD_DIR "/nowhere");
    assert_int_equal(fx_use(STANDIN_FOLDER "/libcflux-cuda.so"), FX_OK);
    assert_true(fx_functional("CUDA"));
    assert_true(fx_functional(STANDIN_FOLDER "/libcflux-cuda.so"));
    assert_string_equal(fx_why_not(STANDIN_FOLDER "/libcflux-cuda.so"), "");
    assert_int_equal(fx_device_count("CUDA"), 3);
    assert_int_equal(messages, 0);
    /* The reason of an unknown backend is kept too. */
    assert_int_equal(fx_use(HEADS "quartz/libcflux-quartz.so"), FX_STATUS_DEVICE);
    has(fx_why_not("Quartz"), "the sizes of its structs differ from this cflux's");
    has(fx_why_not(HEADS "quartz/libcflux-quartz.so"), "the sizes of its structs differ");
    assert_int_equal(messages, 1);
    assert_int_equal(fx_use("./libcflux-nothing.so"), FX_STATUS_DEVICE);
    assert_string_equal(fx_why_not("./libcflux-nothing.so"),
                        "it is not installed: there is no ./libcflux-nothing.so");
    assert_int_equal(fx_use("./nothing.so"), FX_STATUS_DEVICE);
    has(fx_why_not("./nothing.so"), "a name such as libcflux-example.so");
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Nothing writes to the pipe: opening it waits for ever. */
static void a_pipe_is_not_opened(void **state)
{
    (void)state;
    static const char pipe[] = CFLUX_BUILD_DIR "/tests/libcflux-flue.so";
    look_in(CFLUX_BUILD_DIR "/nowhere");
    remove(pipe);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    alarm(60);
    assert_int_equal(fx_use(pipe), FX_STATUS_DEVICE);
    alarm(0);
    has(fx_why_not(pipe), "it cannot be opened: it is not a regular file");
    remove(pipe);
}

/* A backend that is itself a plugin has its kernel libraries found by the same search. */
static void plugins_find_libraries_too(void **state)
{
    (void)state;
    look_in(STANDIN_FOLDER);
    assert_int_equal(fx_use("CUDA"), FX_OK);
    assert_true(fx_functional("CUDA:cuDNN"));
    assert_false(fx_functional("CUDA:absent"));
    has(fx_why_not("CUDA:absent"), "there is no libcflux-cuda-absent.so in ");
    look_in(HEADS "wrong_serves");
    assert_false(fx_functional("CUDA:oneDNN"));
    assert_int_equal(messages, 0); /* libcflux-cpu-onednn.so is another file */
}

/* ---- names and lists ------------------------------------------------------------------------- */

static void names_say_the_kind(void **state)
{
    (void)state;
    fxi_plugin_name n;
    assert_true(fxi_plugin_name_of("libcflux-opencl.so", &n));
    assert_int_equal(n.kind, FX_PLUGIN_BACKEND);
    assert_string_equal(n.name, "opencl");
    assert_string_equal(n.serves, "");
    assert_true(fxi_plugin_name_of("/a/b-c/libcflux-cuda-cublas-lt.so", &n));
    assert_int_equal(n.kind, FX_PLUGIN_KERNEL_LIBRARY);
    assert_string_equal(n.name, "cublas-lt");
    assert_string_equal(n.serves, "cuda");
    static const char *const none[] = {"",
                                       "libcflux.so",
                                       "libcflux-.so",
                                       "libcflux-a.so.1",
                                       "cflux-a.so",
                                       "libcflux--a.so",
                                       "libcflux-a-.so",
                                       "libcflux-a.so/",
                                       ("libcflux-0123456789012345678901234567890123456789"
                                        "0123456789012345678901234.so")};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_false(fxi_plugin_name_of(none[i], &n));
}

typedef struct listed {
    const char *file; /* how its path ends */
    char text[600];
} listed;

static void note(const fx_plugin_info *p, void *user)
{
    listed *l = user;
    const size_t n = strlen(p->file), m = strlen(l->file);
    if (n >= m && strcmp(p->file + n - m, l->file) == 0)
        snprintf(l->text, sizeof l->text, "%s|%s|%s|%s|%s", p->kind, p->name, p->serves, p->version,
                 p->why ? p->why : "not opened");
}

static const char *listed_as(const char *file)
{
    static listed l;
    l = (listed){.file = file};
    fx_plugins(note, &l);
    return l.text;
}

static void the_list_shows_both_kinds(void **state)
{
    (void)state;
    const fx_plugin_head *p;
    look_in(STANDIN_FOLDER ":" HEADS "listed");
    assert_int_equal(fx_use("CUDA"), FX_OK);
    assert_true(fx_functional("CUDA:cuDNN"));
    assert_string_equal(listed_as("standin/libcflux-cuda.so"),
                        "backend|CUDA||" FX_VERSION_STRING "|");
    assert_string_equal(listed_as("standin/libcflux-cuda-cudnn.so"),
                        "kernel library|cuDNN|CUDA|0.0.1|");
    /* A plugin that was not requested is listed and not loaded. */
    assert_string_equal(listed_as("listed/libcflux-metal.so"), "backend|metal|||not opened");
    assert_string_equal(listed_as("listed/libcflux-cpu-onednn.so"),
                        "kernel library|onednn|cpu||not opened");
    assert_int_equal(messages, 0);
    look_in(HEADS "listed");
    assert_int_equal(find(&kinds[0], &p), FXI_PLUGIN_REJECTED);
    assert_string_equal(listed_as("listed/libcflux-metal.so"),
                        "backend|metal||0.0.1|it has no name");
    /* A plugin that was opened stays in the list; one that was only seen does not. */
    look_in(CFLUX_BUILD_DIR "/nowhere");
    assert_string_equal(listed_as("standin/libcflux-cuda.so"),
                        "backend|CUDA||" FX_VERSION_STRING "|");
    assert_string_equal(listed_as("listed/libcflux-cpu-onednn.so"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_rejected_says_why),
        cmocka_unit_test(programs_are_told_the_same),
        cmocka_unit_test(one_that_is_missing_is_silent),
        cmocka_unit_test(the_folders_have_an_order),
        cmocka_unit_test(the_search_goes_on),
        cmocka_unit_test(one_variable_serves_both_kinds),
        cmocka_unit_test(a_path_is_the_only_candidate),
        cmocka_unit_test(fx_use_takes_a_path),
        cmocka_unit_test(a_pipe_is_not_opened),
        cmocka_unit_test(plugins_find_libraries_too),
        cmocka_unit_test(names_say_the_kind),
        cmocka_unit_test(the_list_shows_both_kinds),
    };
    unsetenv("FX_ONEDNN");
    fx_message_set_hook(listen, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
