/* test_kernel_packs_simulated.c: what was trained and packed on one simulated machine runs on
 * another that has a driver but no compiler (tests/sim/sim.h), with the same losses in every bit;
 * and the message for each pack that cannot be used. 4 s. ctest: simulated timeout=120
 *
 * Each machine is a child process with its own environment. FX_NVRTC_LIBRARY and FX_HIPRTC_LIBRARY
 * name no file there, so that an installed compiler is not found either.
 */
#include <cflux.h>

#include "gpu_device.h"
#include "own_child.h"
#include "temp_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#define SIM         CFLUX_BUILD_DIR "/tests/sim"
#define NO_COMPILER "FX_NVRTC_LIBRARY=/none.so FX_HIPRTC_LIBRARY=/none.so "

/* ---- a child: one machine -------------------------------------------------------------------- */

static const char *backend = "CUDA";

static void hear(int level, const char *text, void *user)
{
    (void)user;
    if (strstr(text, "compiling kernels for the first time") == NULL)
        printf("; %d: %s", level, text);
}

static bool is_mapped(const char *name)
{
    char line[1024];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        found = found || strstr(line, name);
    if (f)
        fclose(f);
    return found;
}

static void print_counters(void)
{
    const fxi_gpu_counters *n = fx_backend_proc(backend, "counters");
    printf(" compiled %d, loaded %d, packed %d, compiler %s", (int)n->compiled, (int)n->loaded,
           (int)n->packed, is_mapped("rtc.so") ? "opened" : "not opened");
}

/* The losses of six training steps, in all their bits. */
static void train(void)
{
    fx_use(backend);
    if (!fx_functional(backend)) {
        printf("why: %s", fx_why_not(backend));
        return;
    }
    fx_device *device = fx_device_get(backend, 0);
    fx_seed(7);
    fx_array *x = fx_to(device, fx_randn(6, 9)), *y = fx_to(device, fx_randn(2, 9));
    void *model = fx_to(device, fx_chain(fx_dense(6, 5, FX_TANH), fx_dropout(0.2), fx_dense(5, 2)));
    void *optimiser = fx_setup(fx_adam(.eta = 0.02), model);
    printf("losses");
    for (int k = 0; k < 6; k++) {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(model, x), y);
        fx_update(optimiser, model, fx_gradient(loss, model));
        printf(" %a", fx_item(loss));
    }
    printf(" end");
    print_counters();
    printf(". %s", fx_error_take().message);
}

static void add_and_train(void)
{
    if (fx_kernels_add(getenv("PACK_TO_ADD")) != FX_OK)
        printf("%s", fx_error_take().message);
    train();
}

/* Needs one kernel. */
static void exponentials(void)
{
    float back[3] = {0};
    fx_use(backend);
    if (!fx_functional(backend)) {
        printf("why: %s", fx_why_not(backend));
        return;
    }
    fx_array *y = fx_exp(fx_to(fx_device_get(backend, 0), fx_vector(0, 0, 0)));
    fx_read_into(y, back, sizeof back);
    printf("%g", (double)back[2]);
    print_counters();
    printf(". %s", fx_error_take().message);
}

static int child(const char *name)
{
    if (strncmp(name, "amdgpu-", 7) == 0) {
        backend = "AMDGPU";
        name += 7;
    }
    fx_message_set_hook(hear, NULL);
    (strcmp(name, "train") == 0 ? train
     : strcmp(name, "add") == 0 ? add_and_train
                                : exponentials)();
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static char heard[8192], folder[512], pack[600];

static void run(const char *environment, const char *act)
{
    char all[2048];
    snprintf(all, sizeof all,
             "LD_LIBRARY_PATH=" SIM " FX_PLUGIN_PATH=" CFLUX_BUILD_DIR " SIM_CACHE=" CFLUX_SIM_CACHE
             " FX_CACHE=off FX_CUBLASLT_LIBRARY=off FX_ROCBLAS_LIBRARY=off %s",
             environment);
    const int status = own_child(all, act, heard, sizeof heard);
    if (status != 0)
        fail_msg("with %s, %s ends with %d after: %s", environment, act, status, heard);
}

static void expect(const char *text)
{
    if (!strstr(heard, text))
        fail_msg("'%s', which lacks '%s'", heard, text);
}

/* Runs on a machine with a compiler and an empty cache, and packs what was compiled. */
static void run_and_pack(const char *environment, const char *act)
{
    static int count;
    char all[1200];
    snprintf(folder, sizeof folder, "%s.%d", temp_text("packed", ""), count++);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(all, sizeof all, "FX_CACHE=100 XDG_CACHE_HOME=%s %s", folder, environment);
    run(all, act);
    snprintf(pack, sizeof pack, "%s/kernels.pack", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_int_equal(fx_kernels_pack(pack), FX_OK);
}

static void run_packed(const char *environment, const char *act)
{
    char all[1200];
    snprintf(all, sizeof all, NO_COMPILER "CFLUX_KERNELS=%s %s", pack, environment);
    run(all, act);
}

static char losses[1024];

static void keep_losses(void)
{
    const char *end = strstr(heard, " end");
    assert_non_null(end);
    snprintf(losses, sizeof losses, "%.*s end", (int)(end - heard), heard);
}

static void trains_without_a_compiler(const char *act, const char *add)
{
    char all[1200];
    run_and_pack("", act);
    keep_losses();
    expect("loaded 0, packed 0, compiler opened. ");
    run_packed("", act);
    expect(losses);
    expect("end compiled 0, loaded 0, packed ");
    expect("compiler not opened. ");
    /* The same by a call. */
    snprintf(all, sizeof all, NO_COMPILER "PACK_TO_ADD=%s", pack);
    run(all, add);
    expect(losses);
    expect("end compiled 0, loaded 0, packed ");
    /* The compiler is not opened where there is one. */
    snprintf(all, sizeof all, "CFLUX_KERNELS=%s", pack);
    run(all, act);
    expect(losses);
    expect("compiler not opened. ");
    /* Without the pack nothing runs. */
    run(NO_COMPILER, act);
    expect("why: /none.so, which FX_");
    expect("or set CFLUX_KERNELS to a pack of kernels (docs/gpu.md)");
}

static void cuda_without_a_compiler(void **unused)
{
    (void)unused;
    trains_without_a_compiler("train", "add");
}

static void amdgpu_without_a_compiler(void **unused)
{
    (void)unused;
    trains_without_a_compiler("amdgpu-train", "amdgpu-add");
}

static void which_devices_run_it(void **unused)
{
    (void)unused;
    run_and_pack("SIM_ARCHITECTURE=80", "one");
    run_packed("SIM_ARCHITECTURE=86", "one"); /* machine code of the same major version */
    expect("1 compiled 0, loaded 0, packed 1, compiler not opened. ");
    run_packed("SIM_ARCHITECTURE=75", "one");
    expect("no pack of kernels has code for sm_75 that the driver (CUDA 13.0) loads");
    run_packed("SIM_ARCHITECTURE=90", "one");
    expect("no pack of kernels has code for sm_90 that the driver (CUDA 13.0) loads");
    /* The driver is older than the compiler. */
    run_packed("SIM_ARCHITECTURE=80 SIM_VERSION=12080", "one");
    expect("no pack of kernels has code for sm_80 that the driver (CUDA 12.8) loads");
    /* PTX, for a device that the compiler does not know. */
    run_and_pack("SIM_ARCHITECTURE=121", "one");
    run_packed("SIM_ARCHITECTURE=130", "one");
    expect("1 compiled 0, loaded 0, packed 1, compiler not opened. ");
    run_packed("SIM_ARCHITECTURE=90", "one");
    expect("no pack of kernels has code for sm_90 ");
    run_and_pack("", "amdgpu-one");
    run_packed("SIM_ARCHITECTURE=gfx1100", "amdgpu-one");
    expect("no pack of kernels has code for gfx1100 ");
    run_packed("", "one");
    expect("or set CFLUX_KERNELS to a pack of kernels"); /* the pack has none for CUDA */
}

/* A kernel that the pack lacks is compiled where that is possible; elsewhere its name is said. */
static void a_kernel_is_missing(void **unused)
{
    char all[1200];
    (void)unused;
    run_and_pack("", "one");
    run_packed("", "train");
    expect("compile: CUDA:0 has no compiler, and no pack of kernels has the kernel fx_");
    expect(" for sm_90: run the same program and then `cflux kernels pack FILE` "
           "on a machine with a compiler, and set CFLUX_KERNELS to that file here (/none.so, which "
           "FX_NVRTC_LIBRARY names, cannot be opened");
    snprintf(all, sizeof all, "CFLUX_KERNELS=%s", pack);
    run(all, "train");
    expect("compiler opened. ");
    assert_null(strstr(heard, "compiled 0,"));
}

/* A pack that cannot be used costs a warning; the compiler is used. */
static void a_bad_pack_is_ignored(void **unused)
{
    char all[2048];
    (void)unused;
    run_and_pack("", "one");
    snprintf(all, sizeof all, "CFLUX_KERNELS=%s:/none.pack:%s", temp_text("bad.pack", "no pack"),
             pack);
    run(all, "one");
    expect("bad.pack, which CFLUX_KERNELS names, is ignored: it is not a pack of kernels; 1: "
           "/none.pack, which CFLUX_KERNELS names, is ignored: it cannot be opened: No such file");
    expect("1 compiled 0, loaded 0, packed 1, compiler not opened. ");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda_without_a_compiler), cmocka_unit_test(amdgpu_without_a_compiler),
        cmocka_unit_test(which_devices_run_it), cmocka_unit_test(a_kernel_is_missing),
        cmocka_unit_test(a_bad_pack_is_ignored)};
    return argc > 1 ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
