/* test_gpu_compile.c: every kernel text of the steps in gpu_steps.h compiles in every dialect.
 * clang compiles OpenCL C 1.2, HIP for wavefronts of 32 and of 64, and Metal as C++ for OpenCL
 * (metal_stub.h). NVRTC and ptxas compile CUDA if they are installed, otherwise clang does.
 * Warnings are errors. Many kernels with the same prelude are compiled together; macros give them
 * different names. The argument K/N takes every N-th kernel, from the K-th on, with all
 * architectures. Without it, CFLUX_SEED chooses three kernels of each dialect, and one
 * architecture.
 *
 * ctest: once native timeout=120 */
#include "gpu_nvrtc.h"
#include "gpu_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "temp_file.h"

enum { BATCH = 48, LEAST = 350, SAMPLE = 3 };

static int part, parts; /* this part of so many; 0 parts: a sample */
static long seed;

static bool taken[GPU_TEXTS_MOST]; /* is in a batch */

static int warp = 32; /* of the device */

/* Attention is for devices from compute capability 8.0 on (fxi_gpu_attention). Its texts have
 * batches of their own. */
static bool is_attention(const gpu_text *t)
{
    return strcmp(t->name, "fx_attention") == 0;
}
static bool attention; /* is the batch one of attention? */
static bool serves(const char *arguments)
{
    return !attention || !strstr(arguments, "75");
}
/* The gradient of k and v needs a few more registers than there are, for values that are used only
 * before and after its loop. */
enum { SPILLS_OF_ATTENTION = 40 };

/* Renders the texts of a dialect, and marks those that are left out. Returns how many remain. */
static int collect(fxi_gpu_dialect dialect)
{
    gpu_texts_render_for_warp(dialect, warp);
    assert_true(gpu_texts_count >= LEAST && gpu_texts_steps >= gpu_texts_count);
    /* An odd distance, so that consecutive seeds do not take neighbouring texts. */
    const int first = (int)(seed % gpu_texts_count * 101 % (gpu_texts_count - SAMPLE));
    int left = 0;
    for (int k = 0; k < gpu_texts_count; k++) {
        taken[k] = parts ? k % parts != part - 1 : k < first || k >= first + SAMPLE;
        left += !taken[k];
    }
    assert_int_equal(left, parts ? (gpu_texts_count + parts - part) / parts : SAMPLE);
    return left;
}

/* ---- several texts in one -------------------------------------------------------------------- */
static void rename_all(FILE *f, int number, bool undo)
{
    static const char *const own[] = {"fx_params", "fx_offsets", "fx_table",     "fx_fold",
                                      "fx_philox", "fx_divisor", "fx_divide_by", "fx_over",
                                      "fx_exp2",   "fx_two_f16", "fx_async_f32", "fx_larger"};
    const int nown = (int)(sizeof own / sizeof *own);
    static const char *const folds[] = {"fx_acc",  "fx_none", "fx_take",
                                        "fx_join", "fx_done", "fx_from"};
    for (int k = 0; k < nown; k++)
        fprintf(f, undo ? "#undef %s\n" : "#define %s %s_%d\n", own[k], own[k], number);
    for (int k = 0; k < 6; k++)
        for (int n = 0; n < 4; n++)
            fprintf(f, undo ? "#undef %s%d\n" : "#define %s%d %s%d_%d\n", folds[k], n, folds[k], n,
                    number);
}

/* Undefines the macros that a body defines. */
static void undefine(FILE *f, const char *body)
{
    static const char mark[] = "\n#define ";
    for (const char *p = body; (p = strstr(p, mark)) != NULL;) {
        p += sizeof mark - 1;
        fprintf(f, "#undef %.*s\n", (int)strcspn(p, "( \n"), p);
    }
}

/* Joins the next texts that share a prelude in *out_text, which the caller frees. Returns their
 * number. */
static int next_batch(char **out_text)
{
    size_t bytes;
    int n = 0, first = 0;
    FILE *f = open_memstream(out_text, &bytes);
    assert_non_null(f);
    while (first < gpu_texts_count && taken[first])
        first++;
    attention = first < gpu_texts_count && is_attention(&gpu_texts[first]);
    for (int k = first; k < gpu_texts_count && n < BATCH; k++) {
        const gpu_text *t = &gpu_texts[k];
        const size_t prelude = gpu_texts[first].prelude;
        if (taken[k] || is_attention(t) != attention ||
            strncmp(t->source, gpu_texts[first].source, prelude) != 0)
            continue;
        if (n == 0)
            fprintf(f, "%.*s", (int)prelude, t->source);
        rename_all(f, n, false);
        fprintf(f, "#define %s %s_%d\n", t->name, t->name, n);
        fputs(t->source + prelude, f);
        undefine(f, t->source + prelude);
        rename_all(f, n, true);
        fprintf(f, "#undef %s\n", t->name);
        taken[k] = true;
        n++;
    }
    fclose(f);
    return n;
}

/* ---- compilers ------------------------------------------------------------------------------- */
typedef bool (*compiler)(const char *text, const char *arguments);

static bool by(const char *clang, const char *text, const char *arguments)
{
    char line[2048];
    const char *path = temp_text("kernels.txt", text);
    snprintf(line, sizeof line,
             "%s %s -O1 -Wall -Wextra -pedantic -Werror -Wno-unused -Wno-gnu-anonymous-struct %s",
             clang, arguments, path);
    return system(line) == 0;
}

static bool by_clang(const char *text, const char *arguments)
{
    return by(gpu_clang(), text, arguments);
}

static bool by_new_clang(const char *text, const char *arguments)
{
    return by(gpu_clang_new(), text, arguments);
}

/* Compiles all texts of a dialect, once with each list of arguments. */
static void check(fxi_gpu_dialect dialect, const char *what, compiler compile,
                  const char *const *arguments, int narguments)
{
    int compiled = 0, batches = 0;
    const int expected = collect(dialect);
    char *text;
    for (int n; (n = next_batch(&text)) > 0; compiled += n, batches++) {
        /* A sample that is not for the chosen architecture is compiled for the last one. */
        const int chosen =
            serves(arguments[seed % narguments]) ? (int)(seed % narguments) : narguments - 1;
        for (int k = 0; k < narguments; k++)
            if ((parts || k == chosen) && serves(arguments[k]) && !compile(text, arguments[k]))
                fail_msg("%s: a batch of %d kernels does not compile (%s)", what, n, arguments[k]);
        free(text);
    }
    free(text);
    print_message("%s: %d of %d kernels, in %d batches, seed %ld\n", what, compiled,
                  gpu_texts_count, batches, seed);
    assert_int_equal(compiled, expected);
    gpu_texts_free();
}

#define STUBS    CFLUX_SOURCE_DATA_DIR "/../tests/gpu/"
#define COUNT(a) (int)(sizeof a / sizeof *a)

static bool skip_clang(void)
{
    if (gpu_clang())
        return false;
    print_message("skipped: there is no clang\n");
    return true;
}

static void test_opencl(void **unused)
{
    static const char *const arguments[] = {
        "-x cl -cl-std=CL1.2 -Xclang -finclude-default-header -target spir64 -c -emit-llvm "
        "-o /dev/null"};
    (void)unused;
    if (!skip_clang())
        check(FXI_GPU_OPENCL, "OpenCL C", by_clang, arguments, COUNT(arguments));
}

#define HIP(arch)                                                                                  \
    "-x hip -nogpuinc -nogpulib --cuda-device-only --offload-arch=" arch " -ffp-contract=off -S "  \
    "-o /dev/null"

/* Wavefronts have 64 work-items on the devices for computing, and 32 on those for games. */
static void test_hip(void **unused)
{
    static const char *const of_64[] = {HIP("gfx90a")}, *const of_32[] = {HIP("gfx1030")},
                             *const new_64[] = {HIP("gfx942")}, *const new_32[] = {HIP("gfx1100")};
    (void)unused;
    if (skip_clang())
        return;
    check(FXI_GPU_HIP, "HIP", by_clang, of_32, 1);
    if (gpu_clang_new())
        check(FXI_GPU_HIP, "HIP for gfx1100", by_new_clang, new_32, 1);
    warp = 64;
    check(FXI_GPU_HIP, "HIP of 64", by_clang, of_64, 1);
    if (gpu_clang_new())
        check(FXI_GPU_HIP, "HIP for gfx942", by_new_clang, new_64, 1);
    else
        print_message("skipped: there is no clang-19 for gfx942 and gfx1100\n");
    warp = 32;
}

static void test_metal(void **unused)
{
    static const char *const arguments[] = {
        "-x cl -cl-std=clc++ -Xclang -finclude-default-header -target spir64 -fsyntax-only "
        "-Wno-unknown-attributes -Wno-keyword-macro "
        "-include " STUBS "metal_stub.h"};
    (void)unused;
    if (!skip_clang())
        check(FXI_GPU_METAL, "Metal stub", by_clang, arguments, COUNT(arguments));
}

/* ---- CUDA ------------------------------------------------------------------------------------ */
/* No kernel of the batch may spill registers, except some of attention. */
static bool by_nvrtc(const char *text, const char *arch)
{
    char *report = NULL, *ptx = gpu_nvrtc_ptx(text, arch);
    bool good = ptx && gpu_ptxas(ptx, arch, &report);
    if (good && report) {
        const int spilled = gpu_reported(report, "%d bytes spill stores", "spill stores");
        good = spilled <= (attention ? SPILLS_OF_ATTENTION : 0);
        if (!good)
            print_message("sm_%s: %d bytes of spilled registers\n", arch, spilled);
    }
    free(report);
    free(ptx);
    return good;
}

#define CUDA(arch)                                                                                 \
    "-x cuda -nocudainc -nocudalib --cuda-device-only --cuda-gpu-arch=" arch " "                   \
    "-Wno-unknown-cuda-version -S -o /dev/null -include " STUBS "cuda_shim.h"

static void test_cuda(void **unused)
{
    static const char *const archs[] = {"75", "80", "90"};
    static const char *const arguments[] = {CUDA("sm_75"), CUDA("sm_90")};
    (void)unused;
    if (gpu_nvrtc_open()) {
        check(FXI_GPU_CUDA, gpu_ptxas_works() ? "NVRTC and ptxas" : "NVRTC", by_nvrtc, archs,
              COUNT(archs));
        return;
    }
    print_message("skipped: there is no NVRTC; clang is used instead\n");
    if (gpu_clang_new())
        check(FXI_GPU_CUDA, "CUDA by a newer clang", by_new_clang, arguments, COUNT(arguments));
    else if (!skip_clang())
        /* Older versions do not know sm_90. */
        check(FXI_GPU_CUDA, "CUDA by clang", by_clang, arguments, 1);
}

int main(int argc, char **argv)
{
    const char *text = getenv("CFLUX_SEED");
    seed = text ? labs(atol(text)) : 0;
    if (argc > 1 &&
        (sscanf(argv[1], "%d/%d", &part, &parts) != 2 || part < 1 || part > parts || parts > 9)) {
        fprintf(stderr, "the argument is K/N with 1 <= K <= N <= 9\n");
        return 2;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_opencl), cmocka_unit_test(test_hip),
                                       cmocka_unit_test(test_metal), cmocka_unit_test(test_cuda)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
