/* test_opencl_failures.c: the messages of the OpenCL backend for failures, which devices remain
 * usable, which are chosen, and how the cache of compiled kernels treats wrong files. It runs over
 * a libOpenCL that fails as asked (fake_opencl.c). ctest: native
 *
 * A backend is opened once in a process: every row runs in a child, which writes a line of text.
 */
#include <cflux.h>

#include "opencl.h"
#include "temp_file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAKE CFLUX_BUILD_DIR "/tests/plugins/libfake-opencl.so"

/* ---- what a child does: writes what it sees -------------------------------------------------- */

static void hear(int level, const char *text, void *out)
{
    fprintf(out, "; %d: %s", level, text);
}

static void say_error(FILE *out)
{
    const fx_error e = fx_error_take();
    fprintf(out, " %s (%s)", e.message, fx_status_name(e.status));
}

/* "2 devices: Fake GPU, Fake CPU", or why there are none. */
static void open_it(FILE *out)
{
    fx_use("OpenCL");
    const int n = fx_device_count("OpenCL");
    fprintf(out, "%d devices:", n);
    for (int k = 0; k < n; k++)
        fprintf(out, " %s,", fx_device_model(fx_device_get("OpenCL", k)));
    if (n == 0)
        fprintf(out, " %s", fx_why_not("OpenCL"));
}

/* Copies numbers to the device and back, and compares them. */
static void move(FILE *out, const char *device)
{
    fx_array *x = fx_to(fx_device_find(device), fx_vector(1, 2, 3));
    float back[3] = {0};
    const bool ok = fx_read_into(x, back, sizeof back) == FX_OK && back[0] == 1 && back[2] == 3;
    fprintf(out, "; %s %s", device, ok ? "moves" : "does not move:");
    if (!ok)
        say_error(out);
}

/* Does a step run there? (The fake one computes nothing.) */
static void compute(FILE *out, const char *device)
{
    fx_array *x = fx_to(fx_device_find(device), fx_vector(1, 2, 3));
    const bool ok = fx_eval(fx_exp(x)) == FX_OK && fx_synchronize(fx_device_find(device)) == FX_OK;
    fprintf(out, "; %s %s", device, ok ? "runs" : "does not run:");
    if (!ok)
        say_error(out);
}

/* A convolution large enough for the kernels of tiles, whose groups have 128 to 192 work-items. */
static void convolve(FILE *out)
{
    fx_use("OpenCL");
    fx_device *device = fx_device_find("opencl:0");
    void *model = fx_to(device, fx_conv(FX_DIMS(3, 3), 32, 32, .bias = false));
    const bool ok = fx_eval(fx_call(model, fx_to(device, fx_ones(32, 32, 32, 8)))) == FX_OK;
    fprintf(out, "%s", ok ? "convolves" : "does not convolve:");
    if (!ok)
        say_error(out);
}

static fx_array *exp_of(fx_array *x)
{
    return fx_exp(x);
}
static fx_array *sqrt_of(fx_array *x)
{
    return fx_sqrt(x);
}
static fx_array *sin_of(fx_array *x)
{
    return fx_sin(x);
}
static fx_array *cos_of(fx_array *x)
{
    return fx_cos(x);
}

/* A launch, and then an allocation; the status and the message of what fails. */
static void allocate_after(FILE *out)
{
    fx_use("OpenCL");
    fx_device *device = fx_device_find("opencl:0");
    fx_eval(fx_exp(fx_to(device, fx_vector(1, 2, 3))));
    fx_array *x = fx_to(device, fx_ones(1000));
    fx_eval(x);
    const fx_error e = fx_error_take();
    fprintf(out, "%s %s", fx_status_name(e.status), e.message);
}

static fx_array *(*const maps[])(fx_array *) = {exp_of, sqrt_of, sin_of, cos_of};
enum { MAPS = sizeof maps / sizeof *maps };

static void *compile_one(void *which)
{
    FX_SCOPE;
    fx_array *x = fx_to(fx_device_find("opencl:0"), fx_vector(1, 2, 3));
    return fx_eval(maps[*(int *)which](x)) == FX_OK ? which : NULL;
}

/* A number that the fake library knows. */
static int ask_fake(const char *function)
{
    int (*number)(void);
    *(void **)&number = dlsym(dlopen(FAKE, RTLD_NOW | RTLD_NOLOAD), function);
    return number();
}

/* Two threads for each of two kernels: programs compiled, and the most of them at a time. */
static void compile_together(FILE *out)
{
    int which[4] = {0, 1, 0, 1}, fine = 0;
    pthread_t threads[4];
    fx_use("OpenCL");
    for (int k = 0; k < 4; k++)
        pthread_create(&threads[k], NULL, compile_one, &which[k]);
    for (int k = 0; k < 4; k++) {
        void *result = NULL;
        pthread_join(threads[k], &result);
        fine += result == &which[k];
    }
    const fxi_gpu_counters *n = fx_backend_proc("OpenCL", "counters");
    fprintf(out, "%d threads, compiled %d, %d at a time", fine, (int)n->compiled,
            ask_fake("fake_most_builds"));
}

/* Four kernels, one after the other. */
static void compile_four(FILE *out)
{
    fx_message_set_hook(hear, out);
    fx_use("OpenCL");
    for (int k = 0; k < MAPS; k++)
        if (!compile_one(&k))
            say_error(out);
    fx_message_set_hook(NULL, NULL);
}

static void move_both(FILE *out)
{
    open_it(out);
    move(out, "opencl:0");
    move(out, "opencl:1");
}

static void compute_both(FILE *out)
{
    open_it(out);
    compute(out, "opencl:0");
    compute(out, "opencl:1");
    compute(out, "opencl:0");
}

static void compute_f64(FILE *out)
{
    fx_use("OpenCL");
    for (int k = 0; k < 2; k++) {
        fx_array *x = fx_to(fx_device_get("OpenCL", k), fx_cast(fx_vector(1, 2, 3), FX_DTYPE_F64));
        fprintf(out, "; %d %s", k, fx_array_status(x) == FX_OK ? "takes it" : "refuses:");
        if (fx_array_status(x) != FX_OK)
            say_error(out);
    }
}

/* A mean of what belongs to no device yet: computed without Float64 where it meets a device that
 * has none. */
static void mean_for_f32(FILE *out)
{
    fx_use("OpenCL");
    fx_array *x = fx_to(fx_device_get("OpenCL", 0), fx_vector(1, 2, 3));
    fprintf(out, "; 0 %s", fx_eval(fx_mul(x, fx_mean(fx_rand(3)))) == FX_OK ? "adds a mean" : "");
    say_error(out);
}

/* The device of a program that does not name one. */
static void choose(FILE *out)
{
    fx_use("OpenCL");
    fprintf(out, "device %s, gpu %s", fx_device_name(fx_get_device()),
            fx_device_name(fx_gpu_device()));
}

/* From one device to the other. */
static void copy(FILE *out)
{
    open_it(out);
    fx_array *x = fx_to(fx_device_find("opencl:0"), fx_vector(1, 2, 3));
    fx_array *y = fx_to(fx_device_find("opencl:1"), x);
    float back[3] = {0};
    fx_read_into(y, back, sizeof back);
    const fxi_gpu_counters *n = fx_backend_proc("OpenCL", "counters");
    fprintf(out, "; %g %g, direct %d, waits %d, events left %d; ", (double)back[0], (double)back[2],
            (int)n->direct, ask_fake("fake_waits"), ask_fake("fake_events"));
    if (fx_error_status() != FX_OK)
        say_error(out);
}

/* How many programs were compiled, and how many came from the cache. */
static void count_programs(FILE *out)
{
    fx_use("OpenCL");
    compute(out, "opencl:0");
    const fxi_gpu_counters *n = fx_backend_proc("OpenCL", "counters");
    fprintf(out, "; compiled %d, loaded %d, launched %d", (int)n->compiled, (int)n->loaded,
            (int)n->launches);
}

/* The same for two programs, with the messages to the user. */
static void count_and_hear(FILE *out)
{
    fx_message_set_hook(hear, out);
    fx_use("OpenCL");
    fx_array *x = fx_to(fx_device_find("opencl:0"), fx_vector(1, 2, 3));
    fx_eval(fx_sqrt(x));
    count_programs(out);
    fx_message_set_hook(NULL, NULL);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static char heard[4096];

static void in_child(const char *fault, const char *devices, void (*act)(FILE *))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("FAKE_OPENCL", fault, 1);
        setenv("FX_OPENCL_DEVICES", devices, 1);
        setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR, 1);
        FILE *out = fdopen(ends[1], "w");
        fx_message_set_hook(NULL, NULL);
        act(out);
        fclose(out);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], heard + n, sizeof heard - 1 - n)) > 0;)
        n += (size_t)got;
    heard[n] = '\0';
    close(ends[0]);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("with %s the child ends with %d after: %s", fault, status, heard);
}

static void expect(const char *fault, const char *text)
{
    if (!strstr(heard, text))
        fail_msg("with '%s': '%s', which lacks '%s'", fault, heard, text);
}

typedef struct row {
    const char *fault, *devices;
    void (*act)(FILE *);
    const char *says[3];
} row;

#define BOTH "2 devices: Fake GPU, Fake CPU,"

static const row rows[] = {
    {"", "", move_both, {BOTH, "opencl:0 moves", "opencl:1 moves"}},
    {"", "", compute_both, {"opencl:0 runs; opencl:1 runs"}},
    /* no driver, platform or device */
    {"no_icd", "", open_it, {"0 devices", "no OpenCL platform is installed"}},
    {"no_platform", "", open_it, {"0 devices", "no OpenCL platform is installed"}},
    {"no_device", "", open_it, {"0 devices", "platforms have no device"}},
    {"old two_platforms", "gpu", open_it, {"0 devices", "matches none of the 1 devices"}},
    /* one device cannot be used; the other device is used */
    {"old", "", compute_both, {"1 devices: Fake CPU,", "opencl:0 runs"}},
    {"no_compiler", "", compute_both, {"1 devices: Fake CPU,", "opencl:0 runs"}},
    {"no_queue", "", compute_both, {"1 devices: Fake CPU,", "opencl:0 runs"}},
    {"no_context two_platforms", "", compute_both, {"1 devices: Fake CPU,", "opencl:0 runs"}},
    {"no_context", "", compute_both, {"1 devices: Fake CPU,", "opencl:0 runs"}},
    {"no_context", "gpu", open_it, {"0 devices", "clCreateContext failed with CL_OUT_OF_RES"}},
    {"no_build",
     "",
     compute_both,
     {"opencl:0 does not run:",
      "OpenCL:0 (Fake GPU) cannot compile a kernel: "
      "CL_BUILD_PROGRAM_FAILURE: error: the fake compiler is tired",
      "opencl:1 runs"}},
    {"build_memory",
     "",
     compute_both,
     {"OpenCL:0 (Fake GPU) cannot compile a kernel: CL_OUT_OF_HOST_MEMORY", "(FX_STATUS_MEMORY)",
      "opencl:1 runs"}},
    {"no_launch",
     "",
     compute_both,
     {"opencl:0 does not run:",
      "OpenCL:0 (Fake GPU): clEnqueueNDRangeKernel failed with CL_OUT_OF_RESOURCES",
      "opencl:1 runs"}},
    {"lost",
     "",
     compute_both,
     {"OpenCL:0 (Fake GPU) failed: clEnqueueNDRangeKernel returned CL_DEVICE_NOT_AVAILABLE; arrays "
      "on",
      "opencl:1 runs; opencl:0 does not run:",
      "(Fake GPU) failed: clEnqueueNDRangeKernel returned CL_DEVICE_NOT_AVAILABLE; arrays on"}},
    {"faulted two_platforms",
     "",
     compute_both,
     {"opencl:0 does not run: synchronize: OpenCL:0 (Fake GPU) failed: clFinish returned "
      "CL_INVALID_COMM",
      "opencl:1 runs; opencl:0 does not run: alloc: OpenCL:0 (Fake GPU) failed: clFinish"}},
    {"faulted two_platforms",
     "",
     allocate_after,
     {"FX_STATUS_DEVICE alloc: OpenCL:0 (Fake GPU) failed: clCreateBuffer returned "
      "CL_MEM_OBJECT_ALLOCATION"}},
    {"no_memory", "", allocate_after, {"FX_STATUS_MEMORY"}},
    {"hiccup",
     "",
     compute_both,
     {"opencl:0 does not run: exp: OpenCL:0 (Fake GPU): clEnqueueNDRangeKernel failed with CL_OUT_",
      "opencl:1 runs; opencl:0 runs"}},
    /* groups of 256 work-items */
    {"small_items", "", open_it, {"1 devices: Fake CPU,"}},
    {"small_items", "gpu", open_it, {"0 devices"}},
    {"small_groups",
     "",
     compute_both,
     {"OpenCL:0 (Fake GPU) runs fx_elementwise in groups of at most 64 work-items, but the kernel "
      "needs 256",
      "opencl:1 runs"}},
    {"large", "", convolve, {"convolves"}},
    {"large small_groups",
     "",
     convolve,
     {"in groups of at most 64 work-items, but the kernel needs 1"}},
    {"small_local",
     "",
     compute_both,
     {"OpenCL:0 (Fake GPU) has 1024 bytes of local memory, but fx_elementwise needs 4096",
      "opencl:1 runs"}},
    {"slow", "", compile_together, {"4 threads, compiled 2, 2 at a time"}},
    {"rounds", "", compute_both, {"opencl:0 runs; opencl:1 runs"}},
    {"no_memory", "", move_both, {"opencl:0 does not move:", "bytes"}},
    {"copies_fail",
     "",
     move_both,
     {"opencl:0 does not move:", "clEnqueueWriteBuffer failed with CL_OUT_OF_RESOURCES",
      "opencl:1 moves"}},
    {"no_f64", "", compute_f64, {"0 refuses:", "Float64", "1 takes it"}},
    {"no_f64", "", mean_for_f32, {"0 adds a mean"}},
    /* between devices */
    {"", "", copy, {BOTH, "1 3, direct 1, waits 2, events left 0"}},
    {"two_platforms", "", copy, {BOTH, "1 3, direct 0, waits 0, events left 0"}},
    {"no_marker",
     "",
     copy,
     {"direct 0, waits 0, events left 0",
      "OpenCL:0 (Fake GPU): clEnqueueMarkerWithWaitList failed with CL_OUT_OF_RESOURCES"}},
    {"no_barrier",
     "",
     copy,
     {"direct 1, waits 1, events left 0",
      "OpenCL:0 (Fake GPU): clEnqueueBarrierWithWaitList failed with CL_OUT_OF_RESOURCES"}},
    /* the user's choice */
    {"", "1,0", open_it, {"2 devices: Fake CPU, Fake GPU,"}},
    {"", "cpu", open_it, {"1 devices: Fake CPU,"}},
    {"", "gpu,fake", open_it, {BOTH}},
    {"", "none", open_it, {"0 devices", "FX_OPENCL_DEVICES=none matches none of the 2 devices"}},
    {"", "", choose, {"device OpenCL:0, gpu OpenCL:0"}},
    {"", "cpu", choose, {"device CPU, gpu CPU"}}, /* used only if requested */
    {"", "7,nobody", open_it, {"0 devices", "FX_OPENCL_DEVICES=7,nobody"}},
};

static void each_failure_has_a_message(void **state)
{
    (void)state;
    setenv("FX_CACHE", "off", 1);
    setenv("FX_OPENCL_LIBRARY", FAKE, 1);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        in_child(rows[k].fault, rows[k].devices, rows[k].act);
        for (int i = 0; i < 3 && rows[k].says[i]; i++)
            expect(rows[k].fault, rows[k].says[i]);
    }
}

static void a_library_that_is_none(void **state)
{
    (void)state;
    setenv("FX_OPENCL_LIBRARY", "libnothing-of-that-name.so.1", 1);
    in_child("", "", open_it);
    expect("no library", "libnothing-of-that-name.so.1 cannot be opened");
    setenv("FX_OPENCL_LIBRARY", "libm.so.6", 1);
    in_child("", "", open_it);
    expect("another library", "libm.so.6 has no clGetPlatformIDs: OpenCL 1.2 is required");
}

/* ---- the cache ------------------------------------------------------------------------------- */

static char cache[512];

/* Calls visit with every file of the cache; returns how many. */
static int each_file(void (*visit)(const char *path))
{
    char folder[600], path[1200];
    snprintf(folder, sizeof folder, "%s/cflux", cache);
    DIR *dir = opendir(folder);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (visit)
            visit(path);
        n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

static void change(const char *path, long from_end, int to)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
    assert_int_equal(fputc(to, f), to);
    fclose(f);
}
static void corrupt_end(const char *path)
{
    change(path, 2, 'X');
}
static void corrupt_key(const char *path)
{
    change(path, 200, '\1');
}
static void cut(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 3), 0);
}
static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}
static void lengthen(const char *path)
{
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    fputs("more", f);
    fclose(f);
}
static void erase(const char *path)
{
    unlink(path);
}

static void (*const damages[])(const char *) = {corrupt_end, corrupt_key, cut, empty, lengthen};

static void used_at(const char *path, time_t second)
{
    const struct timespec times[2] = {{.tv_sec = second}, {.tv_sec = second}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}
static void make_old(const char *path)
{
    used_at(path, 1000);
}

/* The cache has files of three starts; one of them is used, and then a file of a megabyte exceeds
 * the limit. */
static void the_bound_of_the_cache(void)
{
    char filler[600];
    snprintf(filler, sizeof filler, "%s/cflux/filler", cache);
    each_file(make_old);
    in_child("", "", count_programs);
    expect("used", "compiled 0, loaded 1, launched 1");
    FILE *f = fopen(filler, "wb");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(truncate(filler, 1 << 20), 0);
    used_at(filler, 2000);
    setenv("FX_CACHE", "1", 1);
    in_child("other_driver", "cpu", count_programs);
    expect("frees space", "compiled 1, loaded 0, launched 1");
    assert_int_equal(each_file(NULL), 2);
    in_child("", "", count_programs);
    expect("used last", "compiled 0, loaded 1, launched 1");
    in_child("other_driver", "", count_programs);
    expect("used long ago", "compiled 1, loaded 0, launched 1");
    setenv("FX_CACHE", "0", 1);
    in_child("", "cpu", count_programs);
    expect("no space", "compiled 1, loaded 0, launched 1");
    assert_int_equal(each_file(NULL), 0);
    unsetenv("FX_CACHE");
}

static void cached_kernels(void **state)
{
    (void)state;
    snprintf(cache, sizeof cache, "%s.d", temp_text("cache", "x"));
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("FX_OPENCL_LIBRARY", FAKE, 1);
    setenv("FX_CACHE", "off", 1);
    in_child("", "", count_programs);
    expect("cache off", "compiled 1, loaded 0, launched 1");
    assert_int_equal(each_file(NULL), 0);
    unsetenv("FX_CACHE");
    in_child("", "", count_programs);
    expect("first start", "compiled 1, loaded 0, launched 1");
    assert_int_equal(each_file(NULL), 1);
    in_child("", "", count_programs);
    expect("second start", "compiled 0, loaded 1, launched 1");
    in_child("", "cpu", count_programs);
    expect("another device", "compiled 1, loaded 0, launched 1");
    in_child("other_driver", "", count_programs);
    expect("another driver", "compiled 1, loaded 0, launched 1");
    assert_int_equal(each_file(NULL), 3);
    the_bound_of_the_cache();
    each_file(erase);
    for (size_t k = 0; k < sizeof damages / sizeof *damages; k++) {
        in_child("", "", count_programs);
        assert_int_equal(each_file(damages[k]), 1);
        in_child("", "", count_programs);
        expect("a damaged file", "compiled 1, loaded 0, launched 1");
        in_child("", "", count_programs);
        expect("a mended file", "compiled 0, loaded 1, launched 1");
        each_file(erase);
    }
    char folder[600];
    snprintf(folder, sizeof folder, "%s/cflux", cache);
    rmdir(folder);
    rmdir(cache);
    /* A folder that cannot be written to is not an error. */
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    in_child("", "", count_programs);
    expect("no place", "compiled 1, loaded 0, launched 1");
}

/* ---- what is said while it compiles ---------------------------------------------------------- */

static int said(const char *text)
{
    int n = 0;
    for (const char *at = heard; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

static void a_line_while_kernels_compile(void **state)
{
    (void)state;
    snprintf(cache, sizeof cache, "%s.d", temp_text("line", "x"));
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("FX_OPENCL_LIBRARY", FAKE, 1);
    in_child("slow", "", compile_four); /* 2.4 s, or more on a busy machine */
    expect("slow", "0: OpenCL:0: compiling kernels for the first time: ");
    int count = 0, seconds = 0;
    assert_int_equal(sscanf(strstr(heard, "time: "), "time: %d so far, %d s", &count, &seconds), 2);
    assert_in_range(count, 1, MAPS);
    assert_in_range(seconds, 2, 60);
    assert_in_range(said("compiling"), 1, 3);
    in_child("slow", "", compile_four); /* they come from the cache */
    assert_string_equal(heard, "");
    in_child("", "cpu", compile_four); /* too fast for a message */
    assert_string_equal(heard, "");
    each_file(erase);
}

/* ---- whose files the cache uses -------------------------------------------------------------- */

enum { NOBODY = 65534 };
static char the_folder[600], elsewhere[600];

static void others_may_write(const char *path)
{
    assert_int_equal(chmod(path, 0666), 0);
}
static void of_another_user(const char *path)
{
    assert_int_equal(chown(path, NOBODY, NOBODY), 0);
}
static void becomes_a_link(const char *path)
{
    char to[1300];
    snprintf(to, sizeof to, "%s/moved", elsewhere);
    mkdir(elsewhere, 0700);
    assert_int_equal(rename(path, to), 0);
    assert_int_equal(symlink(to, path), 0);
}

static void folder_of_others(void)
{
    assert_int_equal(chmod(the_folder, 0770), 0);
}
static void folder_of_another_user(void)
{
    assert_int_equal(chown(the_folder, NOBODY, NOBODY), 0);
}
static void folder_is_a_link(void)
{
    assert_int_equal(rename(the_folder, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, the_folder), 0);
}
static void folder_is_a_file(void)
{
    each_file(erase);
    assert_int_equal(rmdir(the_folder), 0);
    FILE *f = fopen(the_folder, "wb");
    assert_non_null(f);
    fclose(f);
}

typedef struct trust {
    void (*file)(const char *path); /* damages each file */
    void (*folder)(void);           /* or changes the folder */
    const char *says;
    bool needs_root;
} trust;
static const trust trusts[] = {
    {others_may_write, NULL, "other users can write to it (its mode is 666)", false},
    {of_another_user, NULL, "it belongs to user 65534, and this process runs as user 0", true},
    {becomes_a_link, NULL, "it is a link", false},
    {NULL, folder_of_others, "other users can write to it (its mode is 770)", false},
    {NULL, folder_of_another_user, "it belongs to user 65534, and", true},
    {NULL, folder_is_a_link, "it is a link or a file, not a folder", false},
    {NULL, folder_is_a_file, "it is a link or a file, not a folder", false},
};

static void fresh_folder(void)
{
    each_file(erase);
    unlink(the_folder);
    rmdir(the_folder);
    char moved[1300];
    snprintf(moved, sizeof moved, "%s/moved", elsewhere);
    unlink(moved);
    DIR *dir = opendir(elsewhere);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(elsewhere);
}

/* The folder and its files are for the user alone, whatever the umask. */
static void made_for_the_user(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, S_ISDIR(st.st_mode) ? 0700 : 0600);
    assert_int_equal(st.st_uid, geteuid());
}

static void whose_files_it_uses(void **state)
{
    (void)state;
    int checked = 0;
    snprintf(cache, sizeof cache, "%s.d", temp_text("trust", "x"));
    snprintf(the_folder, sizeof the_folder, "%s/cflux", cache);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", cache);
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("FX_OPENCL_LIBRARY", FAKE, 1);
    for (size_t k = 0; k < sizeof trusts / sizeof *trusts; k++) {
        const trust *t = &trusts[k];
        if (t->needs_root && geteuid() != 0)
            continue;
        const mode_t mask = umask(0);
        in_child("", "", count_and_hear);
        umask(mask);
        expect("fresh", "compiled 2, loaded 0, launched 2");
        assert_int_equal(said("kernel cache"), 0);
        made_for_the_user(the_folder);
        assert_int_equal(each_file(made_for_the_user), 2);
        in_child("", "", count_and_hear);
        expect("its own", "compiled 0, loaded 2, launched 2");
        if (t->file)
            each_file(t->file);
        else
            t->folder();
        in_child("", "", count_and_hear);
        expect(t->says, "compiled 2, loaded 0, launched 2");
        expect(t->says, t->says);
        assert_int_equal(said("1: kernel cache: "), 1);
        if (t->file) { /* the process has replaced them with its own files */
            in_child("", "", count_and_hear);
            expect(t->says, "compiled 0, loaded 2, launched 2");
            assert_int_equal(each_file(made_for_the_user), 2);
        }
        fresh_folder();
        checked++;
    }
    rmdir(cache);
    assert_true(checked >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failure_has_a_message), cmocka_unit_test(a_library_that_is_none),
        cmocka_unit_test(cached_kernels), cmocka_unit_test(whose_files_it_uses),
        cmocka_unit_test(a_line_while_kernels_compile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
