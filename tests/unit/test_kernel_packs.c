/* test_kernel_packs.c: packs of compiled kernels as files: what is written can be read, and a file
 * that is damaged, cut, or not a pack is refused with a reason. test_kernel_packs_simulated.c runs
 * them. 1 s.
 */
#include <cflux.h>

#include "kernel_cache.h"
#include "kernel_pack.h"
#include "memory.h"
#include "temp_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

enum { MOST = 1 << 14 };
static unsigned char good[MOST];
static size_t size;
static char folder[512];

static const fx_kernel_key keys[] = {
    {"cuda", "sm_90", "NVRTC 13.0", "--fmad=false", "first text"},
    {"cuda", "sm_90", "NVRTC 13.0", "--fmad=false", "second text"},
    {"cuda", "sm_80", "NVRTC 13.0", "--fmad=false", "first text"},
    {"cuda", "sm_80", "NVRTC 12.4", "--fmad=false", "first text"},
    {"amdgpu", "gfx90a", "hipRTC 7.0", "-ffp-contract=off", "first text"},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* An empty cache in a folder of its own. */
static void fresh_cache(void)
{
    static int count;
    snprintf(folder, sizeof folder, "%s.%d", temp_text("cache", ""), count++);
    assert_int_equal(mkdir(folder, 0700), 0);
    setenv("XDG_CACHE_HOME", folder, 1);
}

static const char *path_of(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void make_pack(void)
{
    fresh_cache();
    for (int k = 0; k < KEYS; k++) {
        char code[64];
        /* 16 bytes for CUDA: the zero byte after them needs 16 more. */
        snprintf(code, sizeof code, "code %d for %s", k, keys[k].target);
        fxi_kernel_store(&keys[k], code, strlen(code));
    }
    assert_int_equal(fx_kernels_pack(path_of("good.pack")), FX_OK);
    FILE *f = fopen(path_of("good.pack"), "rb");
    assert_non_null(f);
    size = fread(good, 1, MOST, f);
    fclose(f);
    assert_true(size > 0 && size < MOST);
}

static const char *write_bytes(const unsigned char *bytes, size_t n)
{
    static char path[600];
    snprintf(path, sizeof path, "%s", path_of("other.pack"));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    return path;
}

static void print_kind(const fx_kernels_info *k, void *user)
{
    char *to = user;
    sprintf(to + strlen(to), "%s %s %s %d %d\n", k->backend, k->target, k->compiler, (int)k->count,
            (int)k->bytes);
}

static void what_is_packed_is_listed(void **unused)
{
    char text[1000] = "";
    (void)unused;
    make_pack();
    assert_int_equal(fx_kernels_list(path_of("good.pack"), print_kind, text), FX_OK);
    /* Of two compilers' code for the same device one is kept. */
    char *one = strstr(text, "NVRTC 12.4") ? "12.4" : "13.0", expected[1000];
    snprintf(expected, sizeof expected,
             "amdgpu gfx90a hipRTC 7.0 1 17\ncuda sm_80 NVRTC %s 1 16\n"
             "cuda sm_90 NVRTC 13.0 2 32\n",
             one);
    assert_string_equal(text, expected);
    char cached[1000] = "";
    assert_int_equal(fx_kernels_list(NULL, print_kind, cached), FX_OK);
    assert_string_equal(cached, text);
}

typedef struct found {
    int n;
    char text[300];
} found;

static bool note(const fx_packed_kernel *k, void *user)
{
    found *f = user;
    f->n++;
    snprintf(f->text, sizeof f->text, "%s %s: %.*s", k->target, k->compiler, (int)k->size,
             (const char *)k->code);
    assert_int_equal(((const char *)k->code)[k->size], 0);
    return strcmp(k->target, "sm_80") == 0;
}

static bool count_one(const fx_packed_kernel *k, void *user)
{
    int *n = user;
    (void)k;
    ++*n;
    return false;
}

static int count_of(const fx_kernel_key *key)
{
    int n = 0;
    assert_false(fxi_kernel_packed(key, count_one, &n));
    return n;
}

static void what_is_packed_is_found(void **unused)
{
    (void)unused;
    found f = {.n = 0};
    fx_kernel_key key = {"amdgpu", "", "", "-ffp-contract=off", "first text"};
    make_pack();
    assert_false(fxi_kernel_packed(&key, note, &f));
    assert_int_equal(f.n, 0); /* no pack was added */
    assert_int_equal(fx_kernels_add(path_of("good.pack")), FX_OK);
    assert_false(fxi_kernel_packed(&key, note, &f));
    assert_int_equal(f.n, 1);
    assert_string_equal(f.text, "gfx90a hipRTC 7.0: code 4 for gfx90a");
    /* For every target, until the search is ended. */
    f.n = 0;
    key = keys[0];
    assert_true(fxi_kernel_packed(&key, note, &f));
    assert_non_null(strstr(f.text, " for sm_80"));
    assert_in_range(f.n, 1, 2);
    assert_int_equal(count_of(&keys[0]), 2);
    assert_int_equal(count_of(&keys[1]), 1);
    assert_int_equal(count_of(&keys[4]), 1);
    f.n = 0;
    key.source = "second text";
    assert_false(fxi_kernel_packed(&key, note, &f));
    assert_int_equal(f.n, 1);
    /* Every text of the key counts. */
    f.n = 0;
    key.source = "third text";
    assert_false(fxi_kernel_packed(&key, note, &f));
    key = keys[0];
    key.options = "";
    assert_false(fxi_kernel_packed(&key, note, &f));
    key = keys[0];
    key.backend = "opencl";
    assert_false(fxi_kernel_packed(&key, note, &f));
    key.source = NULL;
    assert_false(fxi_kernel_packed(&key, note, &f));
    assert_int_equal(f.n, 0);
    key.backend = "amdgpu";
    assert_false(fxi_kernel_packed(&key, note, &f));
    assert_int_equal(f.n, 1);
}

/* Adds the bytes as a pack, which is refused with this message. */
static void refused(const unsigned char *bytes, size_t n, const char *says)
{
    const char *path = write_bytes(bytes, n);
    const fx_status status = fx_kernels_add(path);
    const fx_error e = fx_error_take();
    char begin[700];
    assert_int_equal(status, FX_STATUS_FORMAT);
    snprintf(begin, sizeof begin, "kernels_add: %s: it ", path);
    if (strncmp(e.message, begin, strlen(begin) - 3) != 0 || !strstr(e.message, says))
        fail_msg("'%s' lacks '%s'", e.message, says);
}

static void cut_and_changed_files(void **unused)
{
    static unsigned char bytes[MOST + 1];
    (void)unused;
    make_pack();
    for (size_t n = 0; n < size; n += n < 200 ? 1 : 7)
        refused(good, n, n < FXI_PACK_HEADER ? "it is not a pack" : "incomplete or damaged");
    memcpy(bytes, good, size);
    refused(bytes, size + 1, "incomplete or damaged");
    for (size_t k = 0; k < size; k++) {
        bytes[k] ^= (unsigned char)(1 << k % 8);
        refused(bytes, size, "");
        bytes[k] = good[k];
    }
}

static void mend(unsigned char *bytes, size_t n)
{
    fxi_pack_put(bytes + FXI_PACK_AT_HASH, fxi_pack_hash(bytes, n), 8);
}

/* Files whose checksum is right. */
static void files_from_elsewhere(void **unused)
{
    enum { FIRST = FXI_PACK_HEADER, SECOND = FIRST + FXI_PACK_ENTRY };
    static const struct {
        size_t at;
        uint64_t number;
        int bytes;
        const char *says;
    } rows[] = {
        {0, 'C', 1, "it is not a pack of kernels"},
        {FXI_PACK_AT_FORM, 2, 4,
         "format is 2, but this cflux reads format 1; pack the kernels with"},
        {FXI_PACK_AT_VERSION, '9', 1, "cflux 9.2.0 packed it, and this is cflux 0.2.0; pack"},
        {FXI_PACK_AT_COUNT, UINT32_MAX, 4, "its header is damaged"},
        {FXI_PACK_AT_COUNT, 200, 4, "its header is damaged"},
        {FXI_PACK_AT_TEXTS, UINT64_MAX, 8, "its header is damaged"},
        {FXI_PACK_AT_TEXTS, UINT64_MAX - 300, 8, "its header is damaged"},
        {FXI_PACK_AT_TEXTS, 0, 8, "its header is damaged"},
        {FXI_PACK_AT_TEXTS, 3, 8, "a text has no end"},
        {FIRST, UINT64_MAX, 8, "it is damaged: entry 2 of 4 is invalid"}, /* no longer sorted */
        {FIRST + FXI_PACK_AT_CODE, 0, 8, "entry 1 of 4 is invalid"},
        {FIRST + FXI_PACK_AT_CODE, UINT64_MAX - 15, 8, "entry 1 of 4 is invalid"},
        {SECOND + FXI_PACK_AT_CODE, 1 << 20, 8, "entry 2 of 4 is invalid"},
        {SECOND + FXI_PACK_AT_SIZE, 0, 8, "entry 2 of 4 is invalid"},
        {SECOND + FXI_PACK_AT_SIZE, UINT64_MAX, 8, "entry 2 of 4 is invalid"},
        {SECOND + FXI_PACK_AT_SIZE, 3, 8, "entry 2 of 4 is invalid"}, /* no zero byte after it */
        {SECOND + FXI_PACK_AT_NAMES, 0, 4, "entry 2 of 4 is invalid"},
        {SECOND + FXI_PACK_AT_NAMES + 8, UINT32_MAX, 4, "entry 2 of 4 is invalid"},
    };
    static unsigned char bytes[MOST];
    (void)unused;
    make_pack();
    assert_string_equal((const char *)good + FXI_PACK_AT_VERSION, "0.2.0");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        memcpy(bytes, good, size);
        fxi_pack_put(bytes + rows[k].at, rows[k].number, rows[k].bytes);
        mend(bytes, size);
        refused(bytes, size, rows[k].says);
    }
    /* A version without an end. */
    memcpy(bytes, good, size);
    memset(bytes + FXI_PACK_AT_VERSION, 'x', FXI_PACK_VERSION);
    mend(bytes, size);
    refused(bytes, size, "its header is damaged");
    assert_int_equal(fx_kernels_add(folder), FX_STATUS_FORMAT);
    fx_error_take();
    assert_int_equal(fx_kernels_add(path_of("none")), FX_STATUS_IO);
    assert_non_null(strstr(fx_error_take().message, "/none: it cannot be opened: No such file"));
    assert_int_equal(fx_kernels_add(NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
}

/* A pack without kernels is a file like any other. */
static void a_pack_without_entries(void **unused)
{
    unsigned char bytes[FXI_PACK_HEADER];
    char text[100] = "";
    (void)unused;
    make_pack();
    memcpy(bytes, good, sizeof bytes);
    fxi_pack_put(bytes + FXI_PACK_AT_COUNT, 0, 4);
    fxi_pack_put(bytes + FXI_PACK_AT_TEXTS, 0, 8);
    fxi_pack_put(bytes + FXI_PACK_AT_BYTES, sizeof bytes, 8);
    mend(bytes, sizeof bytes);
    const char *path = write_bytes(bytes, sizeof bytes);
    assert_int_equal(fx_kernels_list(path, print_kind, text), FX_OK);
    assert_string_equal(text, "");
}

static void an_empty_cache(void **unused)
{
    (void)unused;
    fresh_cache();
    assert_int_equal(fx_kernels_pack(path_of("x.pack")), FX_STATUS_STATE);
    assert_non_null(
        strstr(fx_error_take().message, "the cache has no kernels of cflux 0.2.0: run"));
    setenv("FX_CACHE", "off", 1);
    assert_int_equal(fx_kernels_pack(path_of("x.pack")), FX_STATUS_STATE);
    assert_non_null(strstr(fx_error_take().message, "FX_CACHE=off: compiled kernels are not kept"));
    unsetenv("FX_CACHE");
    assert_int_equal(fx_kernels_pack(NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_kernels_list(NULL, NULL, NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
}

/* A damaged file of the cache is not packed. */
static void damaged_files_of_the_cache(void **unused)
{
    char text[1000] = "", damage[1200];
    (void)unused;
    make_pack();
    snprintf(damage, sizeof damage,
             "for f in %s/cflux/cuda-*; do printf x | dd of=$f bs=1 seek=40 conv=notrunc "
             "2>/dev/null; done",
             folder);
    assert_int_equal(system(damage), 0);
    assert_int_equal(fx_kernels_list(NULL, print_kind, text), FX_OK);
    assert_string_equal(text, "amdgpu gfx90a hipRTC 7.0 1 17\n");
}

static void add_count(const fx_kernels_info *k, void *user)
{
    *(int64_t *)user += k->count;
}

/* As many small kernels as programs of some size have: all are packed, and counted for the limit of
 * the cache. */
static void many_files_of_the_cache(void **unused)
{
    enum { MANY = 4200 };
    int64_t packed = 0, left = 0;
    fx_kernel_key key = keys[0];
    char source[32];
    (void)unused;
    fresh_cache();
    key.source = source;
    for (int k = 0; k < MANY; k++) {
        snprintf(source, sizeof source, "text %d", k);
        fxi_kernel_store(&key, source, sizeof source);
    }
    assert_int_equal(fx_kernels_pack(path_of("many.pack")), FX_OK);
    assert_int_equal(fx_kernels_list(path_of("many.pack"), add_count, &packed), FX_OK);
    assert_int_equal(packed, MANY);
    setenv("FX_CACHE", "0", 1);
    fxi_kernel_store(&key, source, sizeof source);
    unsetenv("FX_CACHE");
    assert_int_equal(fx_kernels_list(NULL, add_count, &left), FX_OK);
    assert_int_equal(left, 0);
}

/* Without memory for one of the kernels there is no pack, instead of one that lacks the kernel. */
static void no_memory_for_a_kernel(void **unused)
{
    bool all = false;
    (void)unused;
    make_pack();
    for (int64_t nth = 0; !all; nth++) {
        int64_t n = 0;
        fxi_fault_set(nth);
        fx_status status = fx_kernels_pack(path_of("lacking.pack"));
        all = fxi_fault_seen() <= nth;
        fxi_fault_set(-1);
        assert_int_equal(status, all ? FX_OK : FX_STATUS_MEMORY);
        fx_error_take();
        fxi_fault_set(nth);
        status = fx_kernels_list(NULL, add_count, &n);
        fxi_fault_set(-1);
        assert_true(status == FX_STATUS_MEMORY || (status == FX_OK && n == KEYS - 1));
        fx_error_take();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_is_found),    cmocka_unit_test(what_is_packed_is_listed),
        cmocka_unit_test(cut_and_changed_files),      cmocka_unit_test(files_from_elsewhere),
        cmocka_unit_test(a_pack_without_entries),     cmocka_unit_test(an_empty_cache),
        cmocka_unit_test(damaged_files_of_the_cache), cmocka_unit_test(many_files_of_the_cache),
        cmocka_unit_test(no_memory_for_a_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
