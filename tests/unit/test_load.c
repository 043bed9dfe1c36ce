/* test_load.c: opening backends: the reasons for one that is missing or broken, working stand-ins,
 * their parts, fx_use_all, and that no backend is unloaded. ctest: devices */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "registry.h"
#include "standin.h"
#include "temp_file.h"

static char said[4000];
static int messages;

static void listen(int level, const char *text, void *user)
{
    (void)user;
    assert_int_equal(level, 1);
    messages++;
    snprintf(said, sizeof said, "%s", text);
}

static void look_in(const char *folder)
{
    setenv("FX_PLUGIN_PATH", folder, 1);
    messages = 0;
    *said = 0;
}

static void look_in_broken(const char *variant)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s/tests/broken/%s", CFLUX_BUILD_DIR, variant);
    look_in(folder);
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void a_missing_one_is_not_installed(void **state)
{
    (void)state;
    look_in(CFLUX_BUILD_DIR "/nowhere");
    assert_int_equal(fx_use("Metal"), FX_STATUS_DEVICE);
    assert_int_equal(fx_error_status(), FX_OK);
    has(fx_why_not("Metal"), "it needs macOS; it is not installed: there is no "
                             "libcflux-metal.so in " CFLUX_BUILD_DIR "/nowhere, ");
    assert_int_equal(messages, 0); /* this causes no message */
    assert_int_equal(fx_device_count("Metal"), 0);
    assert_int_equal(fx_use("Nothing"), FX_STATUS_DEVICE);
    has(fx_why_not("Nothing"), "unknown backend; known are CUDA");
    static const char *const strange[] = {NULL, "", "../Metal", "Me tal", "a.b", "CPU-oneDNN"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        assert_int_equal(fx_use(strange[i]), FX_STATUS_DEVICE);
        has(fx_why_not(strange[i]), "unknown backend");
    }
}

/* Each plugin is refused with its own reason, which is also sent as a message; the next attempt
 * opens the file again. */
static void a_broken_one_says_what_is_wrong(void **state)
{
    (void)state;
    const char *const wrong[][2] = {
        {"no_run", "its table must have alloc, free and run"},
        {"half", "its table must have both read and write, or neither"},
        {"part_of_plans",
         "its table must have all of plan_prepare, plan_run and plan_release, or none"},
        {"part_of_marks", "its table must have all of mark, wait and unmark, or none"},
        {"few_buffers", "Metal:0 allows 4 buffers in a step; the minimum is 5"},
        {"needs_library", "libfake_library.so"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        look_in_broken(wrong[i][0]);
        assert_int_equal(fx_use("Metal"), FX_STATUS_DEVICE);
        assert_int_equal(fx_error_status(), FX_OK);
        assert_false(fx_functional("Metal"));
        has(fx_why_not("Metal"), wrong[i][1]);
        has(fx_why_not("Metal"), "libcflux-metal.so is ignored: ");
        has(fx_why_not("Metal"), wrong[i][0]); /* the message names the file */
        assert_int_equal(messages, 1);
        assert_int_equal(strncmp(said, fx_why_not("Metal"), strlen(said)), 0);
        fx_device_get("Metal", 0);
        const fx_error e = fx_error_take();
        assert_int_equal(e.status, FX_STATUS_DEVICE);
        has(e.message, "Unavailable backend: Metal: ");
    }
}

/* Writes the first bytes of a complete plugin to a file. */
static void a_truncated_file_does_not_open(void **state)
{
    (void)state;
    static char bytes[1 << 20];
    FILE *f = fopen(STANDIN_FOLDER "/libcflux-cuda.so", "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 16384);
    const size_t lengths[] = {0, 10, 64, 1000, 4096, 8192};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const char *path = temp_file("libcflux-metal.so", bytes, lengths[i]);
        char folder[600];
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
        look_in(folder);
        assert_int_equal(fx_use("Metal"), FX_STATUS_DEVICE);
        assert_int_equal(fx_error_status(), FX_OK);
        has(fx_why_not("Metal"), "it cannot be opened: ");
        has(fx_why_not("Metal"), path);
        if (i >= 3)
            has(fx_why_not("Metal"), "it cannot be opened: the file is truncated");
        assert_int_equal(messages, 1);
        assert_int_equal(remove(path), 0);
    }
}

static void one_without_a_device_says_why(void **state)
{
    (void)state;
    look_in_broken("no_device");
    assert_int_equal(fx_use("OpenCL"), FX_STATUS_DEVICE);
    assert_string_equal(fx_why_not("OpenCL"), "the driver is of 1999");
    assert_int_equal(fx_error_status(), FX_OK);
    fx_device_get("OpenCL", 0);
    has(fx_error_take().message, "Unavailable backend: OpenCL: the driver is of 1999.");
    look_in_broken("no_reason");
    assert_int_equal(fx_use("Empty"), FX_STATUS_DEVICE);
    assert_string_equal(fx_why_not("Empty"), "it found no device");
    assert_false(fx_functional("Empty"));
}

/* No backend gets more devices than the registry's limit, or fewer than none. */
static void strange_numbers_of_devices(void **state)
{
    (void)state;
    look_in_broken("many_devices");
    assert_int_equal(fx_use("Many"), FX_OK);
    assert_int_equal(fx_device_count("Many"), FXI_DEVICES_MOST);
    assert_string_equal(fx_device_name(fx_device_get("Many", FXI_DEVICES_MOST - 1)), "Many:63");
    fx_device_get("Many", FXI_DEVICES_MOST);
    has(fx_error_take().message, "Many has 64 devices, so there is no id 64");
    look_in_broken("minus_devices");
    assert_int_equal(fx_use("Minus"), FX_STATUS_DEVICE);
    assert_string_equal(fx_why_not("Minus"), "it found no device");
    assert_int_equal(fx_device_count("Minus"), 0);
    look_in_broken("no_open"); /* a backend without `open` has one device */
    assert_int_equal(fx_use("Always"), FX_OK);
    assert_int_equal(fx_device_count("Always"), 1);
    assert_int_equal(fx_error_status(), FX_OK);
}

static int open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* The longest name is found by its name and by fx_use_all; a longer one cannot be a backend's name,
 * so its file is not opened. */
static void names_have_a_limit(void **state)
{
    (void)state;
    char name[66] = "", file[80], folder[600];
    memset(name, 'n', 63);
    look_in_broken("long_name");
    assert_false(fx_functional(name));
    assert_int_equal(fx_use_all(), FX_OK);
    assert_true(fx_functional(name));
    assert_int_equal(fx_use(name), FX_OK);
    assert_string_equal(fx_device_name(fx_device_get(name, 0)) + 63, ":0");
    assert_int_equal(messages, 0);
    for (int length = 64; length <= 65; length++) {
        name[length - 1] = 'n';
        snprintf(file, sizeof file, "libcflux-%s.so", name);
        const char *path = temp_file(file, "", 0);
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
        look_in(folder);
        assert_int_equal(fx_use(name), FX_STATUS_DEVICE);
        assert_int_equal(fx_use_all(), FX_OK);
        has(fx_why_not(name), "unknown backend");
        assert_int_equal(messages, 0);
        assert_int_equal(remove(path), 0);
    }
    const int before = open_files();
    for (int i = 0; i < 5; i++)
        fx_use_all();
    assert_int_equal(open_files(), before);
}

static void the_stand_ins_work(void **state)
{
    (void)state;
    assert_false(fx_functional("CUDA:cuDNN"));
    look_in(STANDIN_FOLDER);
    assert_int_equal(fx_use("cuda"), FX_OK); /* the case of letters does not matter */
    assert_true(fx_functional("CUDA"));
    assert_string_equal(fx_why_not("CUDA"), "");
    assert_int_equal(fx_device_count("CUDA"), 3);
    assert_true(fx_functional("CUDA:cuDNN"));
    assert_string_equal(fx_why_not("CUDA:cuDNN"), "");
    assert_false(fx_functional("CUDA:absent"));
    has(fx_why_not("CUDA:absent"), "it is not installed: there is no libcflux-cuda-absent.so in ");
    assert_string_equal(fx_why_not("CUDA:unheard"), "the backend has no part of that name");
    assert_false(fx_functional("AMDGPU"));
    has(fx_why_not("AMDGPU"), "fx_use(\"AMDGPU\") has not been called");
    for (int i = 0; i < 3; i++) {
        char name[32];
        fx_device *d = fx_device_get("CUDA", i);
        snprintf(name, sizeof name, "CUDA:%d", i);
        assert_string_equal(fx_device_name(d), name);
        has(fx_device_model(d), "stand-in");
        assert_ptr_equal(fx_device_find(name), d);
        assert_int_equal(d->info.memory, 1 << 30);
    }
    fx_device_get("CUDA", 3);
    has(fx_error_take().message, "CUDA has 3 devices, so there is no id 3");
    assert_non_null(fx_backend_proc("CUDA", "standin"));
    assert_null(fx_backend_proc("CUDA", "anything else"));
    assert_null(fx_backend_proc("AMDGPU", "standin"));
}

static void all_of_them(void **state)
{
    (void)state;
    FX_SCOPE;
    look_in(STANDIN_FOLDER);
    fx_device *first = fx_device_get("CUDA", 0);
    fx_array *x = fx_to(first, fx_ones(3));
    assert_int_equal(fx_use_all(), FX_OK);
    assert_true(fx_functional("AMDGPU") && fx_functional("AMDGPU:MIOpen"));
    assert_int_equal(fx_device_count("AMDGPU"), 3);
    assert_ptr_equal(fx_device_get("CUDA", 0), first); /* a loaded backend is unchanged */
    assert_int_equal(fx_use("CUDA"), FX_OK);
    assert_ptr_equal(fx_device_get("CUDA", 0), first);
    assert_true(fx_item(fx_sum(x)) == 3);
    look_in(CFLUX_BUILD_DIR "/nowhere");
    assert_int_equal(fx_use("CUDA"), FX_OK);
    assert_int_equal(messages, 0);
}

static void none_is_unloaded(void **state)
{
    (void)state;
    void *again = dlopen(STANDIN_FOLDER "/libcflux-cuda.so", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(again);
    assert_ptr_equal(dlsym(again, "fx_plugin"), fx_device_get("CUDA", 0)->backend);
    dlclose(again);
    again = dlopen(STANDIN_FOLDER "/libcflux-cuda.so", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(again);
    dlclose(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_one_is_not_installed),
        cmocka_unit_test(a_broken_one_says_what_is_wrong),
        cmocka_unit_test(a_truncated_file_does_not_open),
        cmocka_unit_test(one_without_a_device_says_why),
        cmocka_unit_test(strange_numbers_of_devices),
        cmocka_unit_test(names_have_a_limit),
        cmocka_unit_test(the_stand_ins_work),
        cmocka_unit_test(all_of_them),
        cmocka_unit_test(none_is_unloaded),
    };
    fx_message_set_hook(listen, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
