/* test_other_files.c: files of other programs give the same explanation in every function, and a
 * key that a BSON document contains twice is an error with its offset.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <string.h>

#include "temp_file.h"

#define BYTES(text) text, sizeof(text) - 1
/* The header of a zip archive's first file, up to the length of its name. */
#define ZIP "PK\3\4\24\0\0\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"

static const struct {
    const char *name, *bytes;
    size_t n;
    const char *words; /* of the explanation */
} others[] = {
    {"m.bson", BYTES("7JL\16\4\0\0\0\1"), "Julia's Serialization"},
    {"m.jls", BYTES("7JL\16\4\0\0\0\1"), "BSON.@save"},
    {"m.safetensors", BYTES("7JL\16\4\0\0\0\1"), "Julia's Serialization"},
    {"m.jld2", BYTES("HDF5-based Julia Data Format, version 0.1.1\0"), "JLD2"},
    {"m.bson", BYTES("HDF5-based Julia Data Format, version 0.1.1\0"), "JLD2"},
    {"m.h5", BYTES("\x89HDF\r\n\x1a\n\0\0"), "HDF5"},
    {"m.npz", BYTES("\x89HDF\r\n\x1a\n\0\0"), "HDF5"},
    {"m.bson", BYTES("\x1a\0\0\0\2class_name\0\5\0\0\0Sequ\0\0"), "Keras"},
    {"m.keras", BYTES(ZIP "\15\0\0\0metadata.jsonxxxxxxxx"), "Keras 3"},
    {"m.pt", BYTES(ZIP "\20\0\0\0archive/data.pklxxxxxxxx"), "torch.save"},
    {"m.npz", BYTES(ZIP "\20\0\0\0archive/data.pklxxxxxxxx"), "safetensors.torch.save_file"},
    {"m.pth", BYTES("\x80\2\x8a\nl\xfc\x9c"), "pickle"},
    {"m.pkl", BYTES("\x80\4\x95\0\0"), "pickle"},
    {"m.bson", BYTES(""), "the file is empty"},
    {"m.npz", BYTES(""), "the file is empty"},
    {"m.npy", BYTES(""), "the file is empty"},
    {"m.safetensors", BYTES(""), "the file is empty"},
    {"m", BYTES(""), "the file is empty"},
    {"m.bson", BYTES("\x1f\x8b\10\0"), "gzip"},
    {"m.gguf", BYTES("GGUF\3\0\0\0"), "GGUF"},
};

static void one_explanation(void **state)
{
    int n = 0;
    (void)state;
    FX_TEST;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++, n++) {
        const char *path = temp_file(others[i].name, others[i].bytes, others[i].n);
        fx_file_info info;
        void *file = fx_load(path);
        assert_true(fx_is_error(file));
        const fx_error loading = fx_error_take();
        assert_int_equal(fx_file_about(path, &info), FX_STATUS_FORMAT);
        const fx_error about = fx_error_take();
        assert_int_equal(loading.status, FX_STATUS_FORMAT);
        assert_int_equal(info.bytes, others[i].n);
        if (!strstr(loading.message, others[i].words) || !strstr(loading.message, path))
            fail_msg("row %d, loading: %s", (int)i, loading.message);
        /* the same message, but for the name of the operation */
        assert_string_equal(strstr(loading.message, path), strstr(about.message, path));
    }
    print_message("%d files of other programs\n", n);
    assert_true(n >= 20);
}

/* Files of this library that begin like another's. */
static void no_false_explanation(void **state)
{
    (void)state;
    FX_TEST;
    for (int n = 0; n < 600; n++) { /* one of them has 640 bytes: 80 02, as a pickle */
        char path[600], text[700];
        memset(text, 'x', sizeof text);
        text[n] = 0;
        snprintf(path, sizeof path, "%s", temp_file("text.bson", "", 0));
        assert_int_equal(fx_save(path, "t", fx_string(text)), FX_OK);
        void *file = fx_load(path);
        if (fx_is_error(file))
            fail_msg("%d: %s", n, fx_error_take().message);
    }
}

/* ---- keys that are there twice --------------------------------------------------------------- */

#define INT(key, v) "\x10" key "\0" v "\0\0\0"
static const struct {
    const char *bytes;
    size_t n;
    const char *key;
    int at;
} twice[] = {
    /* at the top, in a document inside, in the parts of a struct */
    {BYTES("\x13\0\0\0" INT("a", "\1") INT("a", "\2") "\0"), "\"a\"", 12},
    {BYTES("\x1b\0\0\0\3d\0\x13\0\0\0" INT("b", "\1") INT("b", "\2") "\0\0"), "\"b\"", 19},
    {BYTES("\x26\0\0\0\3d\0\x1e\0\0\0" INT("tag", "\1") INT("x", "\1") INT("tag", "\2") "\0\0"),
     "\"tag\"", 28},
};

static void keys_that_are_there_twice(void **state)
{
    (void)state;
    FX_TEST;
    for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++) {
        char offset[40];
        fx_file_info info;
        const char *path = temp_file("twice.bson", twice[i].bytes, twice[i].n);
        snprintf(offset, sizeof offset, "offset %d:", twice[i].at);
        for (int about = 0; about < 2; about++) {
            if (about)
                fx_file_about(path, &info);
            else
                fx_load(path);
            const fx_error e = fx_error_take();
            if (e.status != FX_STATUS_FORMAT || !strstr(e.message, twice[i].key) ||
                !strstr(e.message, offset))
                fail_msg("row %d: %s", (int)i, e.message);
        }
    }
    /* more keys than fit on the stack */
    char text[3000] = {0};
    size_t n = 4;
    for (int i = 0; i < 200; i++) {
        text[n++] = 0x10;
        n += (size_t)snprintf(text + n, 8, "k%d", i == 170 ? 3 : i) + 1;
        n += 4;
    }
    n++;
    text[0] = (char)(n & 255);
    text[1] = (char)(n >> 8);
    fx_load(temp_file("many.bson", text, n));
    const fx_error e = fx_error_take();
    if (e.status != FX_STATUS_FORMAT || !strstr(e.message, "\"k3\""))
        fail_msg("%s", e.message);
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_explanation),
                                       cmocka_unit_test(no_false_explanation),
                                       cmocka_unit_test(keys_that_are_there_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
