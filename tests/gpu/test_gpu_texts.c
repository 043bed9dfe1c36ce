/* test_gpu_texts.c: the kernel texts are those of the latest review. gpu_texts.txt has a line for
 * each text: its hash, its kernel and the first step that needs it. The test names every text that
 * differs. So a change to src/backends/gpu/kernels/, or to the code that fills in placeholders,
 * shows which kernels it changes. The dialects differ only in their preludes, which have lines of
 * their own. ctest: once
 *
 *     test_gpu_texts --write FOLDER    writes all texts, one folder for each dialect, for diff -r
 *     test_gpu_texts --renew           accepts the current texts and lists the changes
 */
#include "gpu_texts.h"
#include "hash.h"
#include "gpu_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#define LIST CFLUX_SOURCE_DATA_DIR "/../tests/gpu/gpu_texts.txt"

static const char *const dialects[FXI_GPU_DIALECTS] = {[FXI_GPU_OPENCL] = "opencl",
                                                       [FXI_GPU_CUDA] = "cuda",
                                                       [FXI_GPU_HIP] = "hip",
                                                       [FXI_GPU_METAL] = "metal",
                                                       [FXI_GPU_HOST] = "host"};

/* ---- lists of lines -------------------------------------------------------------------------- */
enum { LINES = 4096, LINE = 224 };
typedef struct list {
    int n;
    char line[LINES][LINE];
} list;
static list now, before;

static bool has(const list *l, const char *line)
{
    for (int k = 0; k < l->n; k++)
        if (strcmp(l->line[k], line) == 0)
            return true;
    return false;
}

/* A text that several steps or dialects share gets one line. */
static void add(const char *bytes, size_t size, const char *name, const char *step)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fxi_hash(bytes, size, 0));
    for (int k = 0; k < now.n; k++)
        if (strncmp(now.line[k], hash, 16) == 0)
            return;
    assert_true(now.n < LINES);
    snprintf(now.line[now.n++], LINE, "%s %s %s", hash, name, step);
}

static void list_texts(void)
{
    static const struct {
        fxi_gpu_dialect dialect;
        bool serial;
    } all[] = {{FXI_GPU_HOST, false},   {FXI_GPU_HOST, true},  {FXI_GPU_METAL, false},
               {FXI_GPU_OPENCL, false}, {FXI_GPU_CUDA, false}, {FXI_GPU_HIP, false}};
    now.n = 0;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        gpu_texts_render(all[k].dialect, all[k].serial);
        assert_true(gpu_texts_count >= 350);
        for (int i = 0; i < gpu_texts_count; i++) {
            const gpu_text *t = &gpu_texts[i];
            add(t->source, t->prelude, "prelude", dialects[all[k].dialect]);
            add(t->source + t->prelude, strlen(t->source + t->prelude), t->name, t->step);
        }
    }
    gpu_texts_free();
}

static void read_list(void)
{
    FILE *f = fopen(LIST, "r");
    before.n = 0;
    if (!f)
        return;
    while (before.n < LINES && fgets(before.line[before.n], LINE, f)) {
        char *line = before.line[before.n++];
        line[strcspn(line, "\n")] = '\0';
    }
    fclose(f);
}

/* Prints the lines that only one of the lists has. Returns their number. */
static int compare(void)
{
    int n = 0;
    for (int k = 0; k < now.n; k++)
        if (!has(&before, now.line[k]) && ++n)
            print_message("new:  %s\n", now.line[k]);
    for (int k = 0; k < before.n; k++)
        if (!has(&now, before.line[k]) && ++n)
            print_message("gone: %s\n", before.line[k]);
    return n;
}

static void test_texts(void **unused)
{
    (void)unused;
    list_texts();
    read_list();
    if (compare() > 0)
        fail_msg("kernel texts have changed: look at them with --write FOLDER, then --renew");
}

/* ---- the two commands ------------------------------------------------------------------------ */
static int renew(void)
{
    list_texts();
    read_list();
    compare();
    FILE *f = fopen(LIST, "w");
    for (int k = 0; k < now.n && f; k++)
        fprintf(f, "%s\n", now.line[k]);
    if (f && fclose(f) == 0)
        return 0;
    print_error("%s cannot be written\n", LIST);
    return 1;
}

static int write_texts(const char *folder)
{
    char path[1024];
    for (int k = 0; k < 2 * FXI_GPU_DIALECTS; k++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, dialects[k / 2], k % 2 ? "_serial" : "");
        mkdir(folder, 0777);
        mkdir(path, 0777);
        const size_t n = strlen(path);
        gpu_texts_render((fxi_gpu_dialect)(k / 2), k % 2);
        for (int i = 0; i < gpu_texts_count; i++) {
            snprintf(path + n, sizeof path - n, "/%04d.%s.%s.cl", i, gpu_texts[i].step,
                     gpu_texts[i].name);
            FILE *f = fopen(path, "w");
            const bool written = f && fputs(gpu_texts[i].source, f) >= 0;
            if (!f || (fclose(f) != 0) | !written) {
                print_error("%s cannot be written\n", path);
                return 1;
            }
        }
    }
    gpu_texts_free();
    return 0;
}

/* A fused step may need more than a device has; the planner then makes smaller steps. A step of one
 * operation fits every device. */
static void small_devices_refuse_fused_steps(void **unused)
{
    (void)unused;
    fxi_gpu_limits l = {
        FXI_GPU_USUAL_LIMITS,     .units = 100, .param_bytes = 1024, .buffers = FXI_GPU_BUFFERS,
        .group_memory = 48 << 10, .f64 = true,  .atomic64 = true};
    assert_int_equal(gpu_texts_refusals(&l), 0);
    l.group_memory = 3000; /* less than the 256 accumulators of a sum need */
    assert_true(gpu_texts_refusals(&l) > 0);
    l.group_memory = 0;
    l.buffers = FX_LEAST_BUFFERS;
    assert_true(gpu_texts_refusals(&l) > 0);
}

/* The number of texts that contain `piece`. */
static int texts_with(const char *piece)
{
    int n = 0;
    for (int k = 0; k < gpu_texts_count; k++)
        n += strstr(gpu_texts[k].source, piece) != NULL;
    return n;
}

/* If the largest tile of a convolution needs too much memory, a smaller one is chosen. */
static void tiles_of_convolutions_fit_in_local_memory(void **unused)
{
    (void)unused;
    fxi_gpu_limits l = {FXI_GPU_USUAL_LIMITS,       .units = 100, .param_bytes = 1024,
                        .buffers = FXI_GPU_BUFFERS, .f64 = true,  .atomic64 = true};
    gpu_texts_render_for(FXI_GPU_OPENCL, &l);
    const int all = texts_with("#define BM (TX * RM)"), large = texts_with("#define TX 24\n");
    assert_true(all > large && large > 0);
    l.group_memory = 21503; /* a byte less than the largest tile needs */
    gpu_texts_render_for(FXI_GPU_OPENCL, &l);
    assert_int_equal(texts_with("#define TX 24\n"), 0);
    assert_true(texts_with("#define BM (TX * RM)") > 0);
    gpu_texts_free();
}

static void widths_of_the_device_are_in_the_texts(void **unused)
{
    (void)unused;
    fxi_gpu_limits l = {FXI_GPU_USUAL_LIMITS,       .units = 100, .param_bytes = 1024,
                        .buffers = FXI_GPU_BUFFERS, .f64 = true,  .atomic64 = true};
    gpu_texts_render_for(FXI_GPU_HIP, &l);
    const int all = gpu_texts_count, each = texts_with("each < 4;"),
              tiles = texts_with("s, 32 * 33)"), sums = texts_with("#define COLUMNS 32\n"),
              few = texts_with("#define ITEMS 32\n");
    assert_true(each > 0 && tiles > 0 && sums > 0 && few > 0);
    assert_int_equal(texts_with("aligned(16)"), all);
    l.warp = 64;
    l.vector_bytes = 32;
    gpu_texts_render_for(FXI_GPU_HIP, &l);
    assert_int_equal(texts_with("each < 8;"), each);
    assert_int_equal(texts_with("aligned(32)"), gpu_texts_count);
    assert_int_equal(texts_with("s, 64 * 65)"), tiles);
    assert_int_equal(texts_with("#define COLUMNS 64\n"), sums);
    assert_true(texts_with("#define ITEMS 64\n") > 0);
    assert_int_equal(texts_with("each < 4;") + texts_with("s, 32 * 33)") +
                         texts_with("#define COLUMNS 32\n") + texts_with("#define ITEMS 32\n"),
                     0);
    l.group_memory = 32 << 10; /* too little for tiles of 64×64 elements of 8 bytes */
    gpu_texts_render_for(FXI_GPU_HIP, &l);
    assert_true(texts_with("s, 32 * 33)") > 0 && texts_with("s, 64 * 65)") > 0);
    gpu_texts_free();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts),
                                       cmocka_unit_test(small_devices_refuse_fused_steps),
                                       cmocka_unit_test(widths_of_the_device_are_in_the_texts),
                                       cmocka_unit_test(tiles_of_convolutions_fit_in_local_memory)};
    if (argc == 2 && strcmp(argv[1], "--renew") == 0)
        return renew();
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_texts(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
