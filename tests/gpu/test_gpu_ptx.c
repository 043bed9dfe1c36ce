/* test_gpu_ptx.c: reads the PTX of named texts and checks the properties that make them fast:
 * vectors, loads before stores, exchange within a warp, products of matrices. The assembler's
 * report must show no spilled registers. NVRTC compiles them if it is installed, otherwise clang
 * does, which chooses vectors for itself and does not assemble.
 *
 * ctest: once timeout=300 */
#include "gpu_nvrtc.h"
#include "gpu_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ORDER_OF_NVRTC: the order of the text is looked at only in NVRTC's output, because clang places
 * the blocks of loops differently. */
enum {
    VECTORS = 1,
    ORDER = 2,
    SHUFFLES = 4,
    ADDS = 8,
    ORDER_OF_NVRTC = 16,
    MATRICES = 32,
    HALF_MATRICES = 64,
    NO_MATRICES = 128,
    ASYNC = 256,
    STORES = 512,     /* vectors are also stored */
    FEW_SPILLS = 1024 /* at most 32 bytes */
};

/* The first text of a step; `has` is what its PTX must have. */
static const struct {
    const char *step, *kernel;
    int has, registers;
} named[] = {
    {"elementwise.ops.f32.2d.dense.dense", "fx_elementwise", VECTORS | ORDER, 64},
    {"elementwise.powi.bf16.2d.dense.dense", "fx_elementwise", VECTORS | ORDER, 64},
    {"elementwise.layout.f32.2d.dense.turned", "fx_elementwise", ORDER, 64},
    {"segments.20.shared", "fx_segments", VECTORS | ORDER, 64},
    {"reduce.0.f32.1d.1.dense", "fx_reduce", VECTORS | ORDER | SHUFFLES, 64},
    {"reduce.1.bf16.1d.1.dense", "fx_reduce", VECTORS | ORDER | SHUFFLES, 64},
    {"rows.softmax.f32.2.1000", "fx_rows", VECTORS | STORES | ORDER_OF_NVRTC | SHUFFLES, 128},
    {"scatter.0.f32.0.atomic", "fx_scatter", ADDS, 64},
    {"scatter.rows.0.f32", "fx_scatter", VECTORS | ORDER_OF_NVRTC | ADDS, 64},
    {"scatter.rows.0.bf16", "fx_scatter", VECTORS | ORDER_OF_NVRTC | ADDS, 64},
    {"matmul.f32.2048", "fx_matmul", 0, 128},
    {"matmul.f64.1024", "fx_matmul", 0, 128},
    {"matmul.f16.2048", "fx_matmul", MATRICES | ASYNC, 255},
    {"matmul.f16.512", "fx_matmul", MATRICES | ASYNC, 128},
    {"matmul.bf16.512", "fx_matmul", MATRICES | ASYNC, 128},
    {"matmul.bf16.2048", "fx_matmul", MATRICES | ASYNC, 255},
    {"gather.rows.f32", "fx_gather", VECTORS | ORDER_OF_NVRTC, 64},
    {"gather.rows.bf16", "fx_gather", VECTORS | ORDER_OF_NVRTC, 64},
    {"conv.forward.1d.type0", "fx_conv", 0, 128},
    {"conv.weight.3d.type0", "fx_conv", 0, 128},
    {"conv.forward.layer.type0", "fx_conv", 0, 168},
    {"conv.weight.layer.type0", "fx_conv", 0, 168},
    {"conv.data.halved.type0", "fx_conv", 0, 168},
};
enum { NAMED = sizeof named / sizeof *named };

/* ---- reading PTX ----------------------------------------------------------------------------- */
/* Returns the position after the last occurrence of either mark; 0 if there is none. */
static size_t last_of(const char *ptx, const char *mark, const char *other)
{
    size_t last = 0;
    for (const char *at = ptx; (at = strstr(at, mark)) != NULL;)
        last = (size_t)(++at - ptx);
    return other && last_of(ptx, other, NULL) > last ? last_of(ptx, other, NULL) : last;
}

static bool has_vectors(const char *ptx)
{
    return strstr(ptx, "ld.global.v") != NULL;
}

/* Is every load from global memory written before the first store or atomic operation? */
static bool in_order(const char *ptx)
{
    static const char *const stores[] = {"st.global.", "red.global.", "atom.global."};
    const char *store = NULL;
    for (int k = 0; k < 3; k++) {
        const char *at = strstr(ptx, stores[k]);
        store = at && (!store || at < store) ? at : store;
    }
    return store && last_of(ptx, "ld.global.", "ld.global.nc.") < (size_t)(store - ptx);
}

static int check(const gpu_text *t, int has, int registers, const char *arch)
{
    const bool nvrtc = gpu_nvrtc_open();
    char *report = NULL, *ptx = nvrtc ? gpu_nvrtc_ptx(t->source, arch) : gpu_clang_ptx(t->source);
    int wrong = 0;
    assert_non_null(ptx);
#define REQUIRE(what, ...)                                                                         \
    if (!(what)) {                                                                                 \
        print_message("%s: %s, sm_%s: ", t->step, t->name, arch);                                  \
        print_message(__VA_ARGS__);                                                                \
        wrong++;                                                                                   \
    }
    REQUIRE(!(has & VECTORS) || !nvrtc || has_vectors(ptx), "no vectors\n")
    REQUIRE(!(has & STORES) || !nvrtc || strstr(ptx, "st.global.v"), "no stores of vectors\n")
    const bool ordered = (has & ORDER) || ((has & ORDER_OF_NVRTC) && nvrtc);
    REQUIRE(!ordered || in_order(ptx), "a load follows a store\n")
    REQUIRE(!(has & SHUFFLES) || strstr(ptx, "shfl.sync"), "no exchange within a warp\n")
    /* Functions of CUDA that clang does not know are not in its PTX. */
    REQUIRE(!(has & MATRICES) || !nvrtc || strstr(ptx, "mma.sync.aligned.m16n8k16"),
            "no products of matrices\n")
    REQUIRE(!(has & HALF_MATRICES) || strstr(ptx, "mma.sync.aligned.m16n8k8"),
            "no products of matrices of 8 terms\n")
    REQUIRE(!(has & NO_MATRICES) || !strstr(ptx, "mma.sync"), "products of matrices\n")
    REQUIRE(!(has & ASYNC) || !nvrtc ||
                (strstr(ptx, "cp.async.cg.shared.global") && strstr(ptx, "ldmatrix.sync")),
            "no copies of 16 bytes into shared memory, or no loads of matrices from there\n")
    REQUIRE(!(has & ADDS) || !nvrtc || strstr(ptx, ".global.add."), "no atomic addition\n")
    REQUIRE(!nvrtc || gpu_ptxas(ptx, arch, &report), "not assembled\n")
    if (report) {
        const int used = gpu_reported(report, "Used %d", "registers"),
                  spilled = gpu_reported(report, "%d bytes spill stores", "spill stores");
        REQUIRE(used > 0 && used <= registers, "%d registers\n", used)
        REQUIRE(spilled <= (has & FEW_SPILLS ? 32 : 0), "%d bytes of spilled registers\n", spilled)
    }
#undef REQUIRE
    free(report);
    free(ptx);
    return wrong;
}

static const gpu_text *find(const char *step, const char *kernel)
{
    for (int k = 0; k < gpu_texts_count; k++)
        if (strcmp(gpu_texts[k].step, step) == 0 && strcmp(gpu_texts[k].name, kernel) == 0)
            return &gpu_texts[k];
    fail_msg("there is no text %s of %s", kernel, step);
    return NULL;
}

static void test_named(void **unused)
{
    int wrong = 0;
    (void)unused;
    if (!gpu_nvrtc_open() && !gpu_clang()) {
        print_message("skipped: there is neither NVRTC nor clang\n");
        return;
    }
    gpu_texts_render(FXI_GPU_CUDA, false);
    for (int k = 0; k < NAMED; k++)
        wrong +=
            check(find(named[k].step, named[k].kernel), named[k].has, named[k].registers, "90");
    /* The oldest architecture has products of matrices for Float16 only. */
    if (gpu_nvrtc_open())
        for (int k = 0; k < NAMED; k++)
            if (named[k].has & MATRICES)
                wrong += check(find(named[k].step, named[k].kernel),
                               strstr(named[k].step, ".f16.") ? HALF_MATRICES : NO_MATRICES,
                               named[k].registers, "75");
    gpu_texts_free();
    assert_int_equal(wrong, 0);
}

/* The registers of a work-item with which two groups fit in a unit, which has 65536 registers and
 * allocates 8 at a time: 128 for groups of 256 work-items, 168 for 192, 200 for 160. A work-item
 * has at most 255. Kernels with 64-bit indices, and those that ask for memory, keep a unit for
 * themselves.
 */
static int registers_of(const char *source)
{
    enum { UNIT = 65536, TOGETHER = 2, ROUNDED = 8, MOST = 255 };
    const char *text = strstr(source, "#define FX_GROUP ");
    int group = 0;
    assert_non_null(text);
    assert_int_equal(sscanf(text, "#define FX_GROUP %d", &group), 1);
    const int fit = UNIT / TOGETHER / group / ROUNDED * ROUNDED;
    const bool alone = strstr(source, "#define FX_WIDE") || strstr(source, "#define FX_ALONE");
    return alone || fit > MOST ? MOST : fit;
}

/* Every text of a product and a convolution, for devices with and without instructions for
 * matrices. */
static void test_products(void **unused)
{
    static const char *const archs[] = {"75", "90"};
    int wrong = 0, compiled = 0;
    (void)unused;
    if (!gpu_nvrtc_open() || !gpu_ptxas_works()) {
        print_message("skipped: there is no NVRTC with ptxas\n");
        return;
    }
    gpu_texts_render(FXI_GPU_CUDA, false);
    for (int k = 0; k < gpu_texts_count; k++) {
        const gpu_text *t = &gpu_texts[k];
        if (strcmp(t->name, "fx_matmul") != 0 && strcmp(t->name, "fx_conv") != 0)
            continue;
        compiled++;
        for (int a = 0; a < (int)(sizeof archs / sizeof *archs); a++)
            wrong += check(t, 0, registers_of(t->source), archs[a]);
    }
    print_message("%d products and convolutions\n", compiled);
    gpu_texts_free();
    assert_true(compiled > 40);
    assert_int_equal(wrong, 0);
}

/* The largest tile, for devices whose groups may ask for more memory. */
static void test_asked_memory(void **unused)
{
    static const char *const archs[] = {"80", "90"}, *const steps[] = {"matmul.f16.2048",
                                                                       "matmul.bf16.2048"};
    const fxi_gpu_limits its = {FXI_GPU_USUAL_LIMITS,       .units = 100, .param_bytes = 1024,
                                .buffers = FXI_GPU_BUFFERS, .f64 = true,  .atomic64 = true,
                                .asked_memory = 99 << 10};
    int wrong = 0;
    (void)unused;
    if (!gpu_nvrtc_open()) {
        print_message("skipped: there is no NVRTC\n");
        return;
    }
    gpu_texts_render_for(FXI_GPU_CUDA, &its);
    for (int k = 0; k < 2; k++) {
        const gpu_text *t = find(steps[k], "fx_matmul");
        assert_non_null(strstr(t->source, "FX_LOCAL_ASKED(fx_v16"));
        wrong += check(t, MATRICES | ASYNC, 255, archs[k]);
    }
    gpu_texts_free();
    assert_int_equal(wrong, 0);
}

/* The texts of attention for the usual number of features. The gradient of k and v needs a few
 * more registers than there are, for values that are used only before and after its loop. */
static void test_attention(void **unused)
{
    static const char *const archs[] = {"80", "90"};
    int wrong = 0, compiled = 0;
    (void)unused;
    if (!gpu_nvrtc_open()) {
        print_message("skipped: there is no NVRTC\n");
        return;
    }
    gpu_texts_render(FXI_GPU_CUDA, false);
    for (int k = 0; k < gpu_texts_count; k++) {
        const gpu_text *t = &gpu_texts[k];
        const bool keys = strstr(t->step, ".key_value.") != NULL;
        if (strcmp(t->name, "fx_attention") != 0 || !strstr(t->step, ".bf16.64.64") ||
            strstr(t->step, ".wide"))
            continue;
        wrong += check(t, MATRICES | ASYNC | (keys ? FEW_SPILLS : 0), 255, archs[compiled++ % 2]);
    }
    print_message("%d texts of attention\n", compiled);
    gpu_texts_free();
    assert_int_equal(compiled, 10);
    assert_int_equal(wrong, 0);
}

/* AMD's instructions for matrices, as clang writes them. gfx90a has none for Float16 that keeps
 * subnormal numbers. */
static int check_amd(const char *compiler, const char *arch, const char *step, const char *mark)
{
    int wrong = 0;
    char *text = gpu_hip_assembly(compiler, find(step, "fx_matmul")->source, arch);
    assert_non_null(text);
    const char *spills = strstr(text, ".vgpr_spill_count:");
    if (!strstr(text, mark)) {
        print_message("%s for %s: no %s\n", step, arch, mark);
        wrong++;
    }
    if (!spills || strtol(spills + strlen(".vgpr_spill_count:"), NULL, 10) != 0) {
        print_message("%s for %s: spilled registers\n", step, arch);
        wrong++;
    }
    free(text);
    return wrong;
}

static void test_amd(void **unused)
{
    static const struct {
        const char *arch, *step, *mark;
        int warp;
        bool newer; /* needs a newer clang */
    } cases[] = {
        {"gfx90a", "matmul.bf16.2048", "v_mfma_f32_16x16x16bf16_1k", 64, false},
        {"gfx90a", "matmul.f16.2048", "fma", 64, false},
        {"gfx942", "matmul.bf16.2048", "v_mfma_f32_16x16x16_bf16", 64, true},
        {"gfx942", "matmul.f16.512", "v_mfma_f32_16x16x16_f16", 64, true},
        {"gfx1030", "matmul.bf16.512", "fma", 32, false},
        {"gfx1100", "matmul.bf16.2048", "v_wmma_f32_16x16x16_bf16", 32, true},
        {"gfx1100", "matmul.f16.512", "v_wmma_f32_16x16x16_f16", 32, true},
    };
    int wrong = 0, skipped = 0;
    (void)unused;
    for (int k = 0; k < (int)(sizeof cases / sizeof *cases); k++) {
        const char *compiler = cases[k].newer ? gpu_clang_new() : gpu_clang();
        if (!compiler) {
            skipped++;
            continue;
        }
        gpu_texts_render_for_warp(FXI_GPU_HIP, cases[k].warp);
        wrong += check_amd(compiler, cases[k].arch, cases[k].step, cases[k].mark);
        gpu_texts_free();
    }
    if (skipped)
        print_message("skipped: no clang-19 (or clang) for %d of AMD's texts\n", skipped);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named), cmocka_unit_test(test_products),
        cmocka_unit_test(test_asked_memory), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_amd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
