/* test_io.c: detects the format of a file; texts as entries.
 *
 * Which version of Flux wrote a recorded file follows from its date and from the types that its
 * index lists: a TrackedArray of the package Tracker means Flux 0.8 or 0.9, a Conv with groups Flux
 * 0.12.6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_out.h"
#include "read_back.h"
#include "temp_file.h"

static int64_t size_of(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return s.st_size;
}

static void expect(const char *path, const char *format, const char *origin)
{
    fx_file_info info;
    assert_int_equal(fx_file_about(path, &info), FX_OK);
    assert_string_equal(info.format, format);
    assert_string_equal(info.origin, origin);
    assert_int_equal(info.bytes, size_of(path));
}

static void every_format_is_named(void **state)
{
    (void)state;
    fx_dense_layer *m = fx_dense(3, 2);
    fx_array *x = fx_ones(2, 3);
    const char *bson = temp_text("a.bson", ""), *tensors = temp_text("a.safetensors", ""),
               *npy = temp_text("a.npy", ""), *npz = temp_text("a.npz", ""),
               *point = temp_text("a.checkpoint", "");
    assert_int_equal(fx_save(bson, "model", m), FX_OK);
    assert_int_equal(fx_save(tensors, "model", m), FX_OK);
    assert_int_equal(fx_save(npy, "x", x), FX_OK);
    assert_int_equal(fx_save(npz, "x", x), FX_OK);
    assert_int_equal(fx_checkpoint_save(point, m, .epoch = 2, .step = 17), FX_OK);
    expect(bson, "BSON", "");
    expect(tensors, "safetensors", "");
    expect(npy, "npy", "NumPy's format 1.0");
    expect(npz, "npz", "");
    expect(point, "checkpoint", "cflux, epoch 2, training step 17");
    const void *header = fx_load_key(point, "__metadata__");
    assert_string_equal(fx_metadata_text(header, "notation.model"), "Dense(3 => 2)");
}

/* Keys are found whatever their order and number. A key that is used twice is an error. */
static void metadata_by_key(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { KEYS = 3000 };
    static char texts[2 * KEYS][8];
    const void *list[2 * KEYS + 2];
    for (int i = 0; i < KEYS; i++) {
        snprintf(texts[2 * i], sizeof texts[0], "k%d", i * 1237 % KEYS);
        snprintf(texts[2 * i + 1], sizeof texts[0], "%d", i);
        list[2 * i] = texts[2 * i];
        list[2 * i + 1] = texts[2 * i + 1];
    }
    list[2 * KEYS] = "k7";
    list[2 * KEYS + 1] = "again";
    assert_true(fx_is_error(fxi_metadata(2 * KEYS + 2, list)));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_ARGUMENT);
    assert_string_equal(e.message, "metadata: two texts have the key \"k7\"");
    list[3] = NULL;
    assert_true(fx_is_error(fxi_metadata(4, list)));
    assert_string_equal(fx_error_take().message, "metadata: argument 4 is NULL; expected a text");
    list[3] = texts[3];
    const void *m = fxi_metadata(2 * KEYS, list);
    assert_int_equal(fx_metadata_count(m), KEYS);
    for (int i = 0; i < KEYS; i++) {
        assert_string_equal(fx_metadata_key(m, i), texts[2 * i]);
        assert_string_equal(fx_metadata_text(m, texts[2 * i]), texts[2 * i + 1]);
    }
    assert_null(fx_metadata_text(m, "k"));
    assert_null(fx_metadata_text(m, "zz"));
    assert_null(fx_metadata_text(m, ""));
    assert_null(fx_metadata_text(fx_metadata("a", "b"), NULL));
}

static void what_wrote_a_file_is_narrowed_down(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"flux-bson/FluxML__model-zoo__games.weights.ppo.CartPole-v0.value__27c98c0.bson",
         "Flux 0.8 to 0.9"},
        {"flux-bson/FluxML__model-zoo__games.weights.ppo.Pendulum-v0.policy_mu__76309ac.bson",
         "Flux 0.8 to 0.9, Julia 1.1.0"},
        {"flux-bson/ShuhuaGao__model-zoo__runs.model__d7598e3.bson", "Flux 0.12.6 or later"},
        {"flux-bson/Deltadahl__Image-Longitudinal__weights__bfecc41.bson", "Flux 0.10 or later"},
        {"flux-bson/FluxML__Flux.jl__docs.mymodel__458566c.bson", ""},
    };
    if (!recorded_path(files[0][0])) {
        print_message("skipped: no flux-bson in CFLUX_DATA\n");
        return;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        expect(recorded_path(files[i][0]), "BSON", files[i][1]);
}

static void layers_of_one_version_say_it(void **state)
{
    (void)state;
    const char *path = temp_text("versions.bson", "");
    fx_file_info info;
    assert_int_equal(fx_save(path, "model", fx_chain(fx_batchnorm(3), fx_dropout(0.5))), FX_OK);
    assert_int_equal(fx_file_about(path, &info), FX_OK);
    assert_string_equal(info.origin, "Flux 0.13 or later"); /* Dropout with a generator */
}

/* Checks status and message; *info has the members that could be found out. */
static void refused(const char *path, fx_status status, const char *format, const char *why)
{
    fx_file_info info;
    assert_int_equal(fx_file_about(path, &info), status);
    assert_string_equal(info.format, format);
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, why));
    assert_non_null(strstr(e.message, path));
}

static void what_is_no_file_of_these_is_refused(void **state)
{
    (void)state;
    refused("/nowhere/x.npy", FX_STATUS_IO, "", "cannot open");
    refused(temp_text("list.txt", "a list\n"), FX_STATUS_FORMAT, "", "unknown format");
    refused(temp_file("short.bson", "\x20\0\0\0", 4), FX_STATUS_FORMAT, "BSON", "offset");
    refused(temp_file("cut.safetensors", "\x20\0\0\0\0\0\0\0{", 9), FX_STATUS_FORMAT, "safetensors",
            "offset");
}

/* A file that only has the extension of NumPy's files, or is cut off, is refused. */
static void numpy_files_are_looked_at(void **state)
{
    (void)state;
    static unsigned char bytes[4096];
    refused(temp_text("text.npy", "hello world"), FX_STATUS_FORMAT, "npy", "magic number");
    refused(temp_file("cut.npy", "\x93NUMPY\1", 7), FX_STATUS_FORMAT, "npy", "the version");
    refused(temp_file("new.npy", "\x93NUMPY\4\0\0\0\0\0", 12), FX_STATUS_FORMAT, "npy", "4.0");
    refused(temp_text("empty.npy", ""), FX_STATUS_FORMAT, "npy", "the file is empty");
    refused(temp_text("text.npz", "hello world"), FX_STATUS_FORMAT, "npz", "directory");
    refused(temp_file("cut.npz", "PK\3\4", 4), FX_STATUS_FORMAT, "npz", "directory");
    const char *path = temp_text("good.npz", "");
    assert_int_equal(fx_save(path, "a", fx_ones(3), "b", fx_ones(2, 2)), FX_OK);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 500 && n < sizeof bytes);
    refused(temp_file("short.npz", bytes, n - 1), FX_STATUS_FORMAT, "npz", "truncated");
    size_t entry = n; /* the last of the directory */
    while (--entry > 0 && memcmp(bytes + entry, "PK\1\2", 4) != 0)
        ;
    bytes[entry] = 'Q';
    refused(temp_file("entry.npz", bytes, n), FX_STATUS_FORMAT, "npz", "not an entry");
    bytes[entry] = 'P';
    expect(temp_file("again.npz", bytes, n), "npz", "");
}

/* Members from which the directory's end has its 64-bit form: APPNOTE.TXT 4.3.14, 4.4.1.4. */
static void the_end_of_a_directory_by_its_members(void **state)
{
    (void)state;
    enum { MOST = 65535 };
    static void *items[MOST];
    for (int n = MOST - 1; n <= MOST; n++) {
        FX_SCOPE;
        unsigned char end[98]; /* 64-bit end, locator, end */
        fx_array *x = fx_ones(1);
        for (int i = 0; i < n; i++)
            items[i] = x;
        const char *path = temp_text("many.npz", "");
        assert_int_equal(fx_save(path, "t", fxi_tuple(n, items)), FX_OK);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fseek(f, -(long)sizeof end, SEEK_END), 0);
        assert_int_equal(fread(end, 1, sizeof end, f), sizeof end);
        fclose(f);
        assert_memory_equal(end + 76, "PK\5\6", 4);
        assert_int_equal(memcmp(end, "PK\6\6", 4) == 0, n == MOST);
        assert_int_equal(end[76 + 10] | end[76 + 11] << 8, n);
        void *back = fx_load(path);
        assert_int_equal(fx_count(back), n);
    }
}

/* A descr of more characters than any element type has. */
static void long_texts_of_numpy_are_refused(void **state)
{
    (void)state;
    static const char head[] = "{'descr': '<f4<f4<f4<f4<f4<f4', 'fortran_order': False, "
                               "'shape': (1,), }\n";
    char bytes[10 + sizeof head + 3] = "\x93NUMPY\1";
    bytes[8] = sizeof head - 1;
    memcpy(bytes + 10, head, sizeof head - 1);
    FX_SCOPE;
    assert_true(fx_is_error(fx_load(temp_file("long.npy", bytes, sizeof bytes))));
    assert_non_null(strstr(fx_error_take().message, "not closed, or has more than"));
}

/* A file that cannot be mapped is read, in the pieces in which the system delivers it. */
static void a_pipe_is_read(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("piped.npy", "");
    assert_int_equal(fx_save(path, "x", fx_range(0, 1, 700)), FX_OK);
    for (int pieces = 0; pieces < 2; pieces++) {
        FX_SCOPE;
        size_t n;
        char *bytes = file_bytes(path, &n), name[32];
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], bytes, n), n);
        assert_int_equal(close(ends[1]), 0);
        snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
        fxi_file_fault_set(pieces ? 1 : -1, FXI_FILE_SHORT); /* call 0 opens, call 1 reads */
        fx_array *x = fx_load(name);
        fxi_file_fault_set(-1, 0);
        assert_int_equal(fx_error_take().status, FX_OK);
        assert_int_equal(fx_length(x), 700);
        for (int i = 0; i < 700; i++)
            assert_true(fx_at(x, i) == i);
        close(ends[0]);
        free(bytes);
    }
}

/* A program that has closed its standard input gets number 0 for the next file. */
static void a_file_may_have_the_number_zero(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("zero.npy", "");
    assert_int_equal(fx_save(path, "x", fx_vector(1, 2)), FX_OK);
    const int kept = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    fx_array *x = fx_load(path);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_int_equal(fx_error_take().status, FX_OK);
    assert_int_equal(fx_length(x), 2);
}

static void a_damaged_checkpoint_is_seen(void **state)
{
    (void)state;
    const char *path = temp_text("damaged.checkpoint", "");
    assert_int_equal(fx_checkpoint_save(path, fx_dense(3, 2)), FX_OK);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -12, SEEK_END), 0);
    assert_true(fputc(0x5A, f) != EOF && fclose(f) == 0);
    refused(path, FX_STATUS_FORMAT, "checkpoint", "CRC-32");
}

static void texts_are_entries(void **state)
{
    (void)state;
    const char *path = temp_text("texts.bson", "");
    void *classes = fx_tuple(fx_string("cat"), fx_string("dög"), fx_string(""));
    assert_int_equal(fx_save(path, "classes", classes, "target", fx_string("kind")), FX_OK);
    void *file = fx_load(path), *read = fx_child_named(file, "classes");
    assert_string_equal(fx_string_text(fx_child_named(file, "target")), "kind");
    assert_int_equal(fx_count(read), 3);
    assert_string_equal(fx_string_text(fx_child(read, 0)), "cat");
    assert_string_equal(fx_string_text(fx_child(read, 1)), "dög");
    assert_string_equal(fx_string_text(fx_child(read, 2)), "");
    assert_null(fx_string_text(read));
    assert_null(fx_string_text(fx_ones(2)));
    assert_null(fx_string_text(NULL));
    assert_true(fx_is_error(fx_string(NULL)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

/* Bytes of the program at an address `offset` beyond an aligned one. */
typedef struct lent {
    char *memory;
    const void *expected; /* the address that release gets */
    int releases;
} lent;

static void give_back(void *data, void *user)
{
    lent *l = user;
    assert_ptr_equal(data, l->expected);
    l->releases++;
    free(l->memory); /* the address sanitizer sees a later use */
    l->memory = NULL;
}

static void *load_lent(lent *l, const char *bytes, size_t n, size_t offset)
{
    *l = (lent){.memory = malloc(n + offset + 1)}; /* malloc(0) may return NULL */
    assert_non_null(l->memory);
    memcpy(l->memory + offset, bytes, n);
    l->expected = l->memory + offset;
    return fx_load_bytes(l->expected, n, give_back, l);
}

/* A file from memory has the content of the file, at every alignment. Its bytes are released
 * once: when no array uses them, or when the call fails. */
static void bytes_are_a_file(void **state)
{
    (void)state;
    static const char *const names[] = {"lent.bson", "lent.safetensors", "lent.npz", "lent.npy"};
    static const double values[] = {0, 0.5, 1, 1.5, 2, 2.5};
    lent l;
    for (int f = 0; f < 4; f++) {
        size_t n;
        const char *path = temp_text(names[f], "");
        assert_int_equal(fx_save(path, "x", fx_reshape(fx_range(0, 0.5, 6), 2, 3)), FX_OK);
        char *bytes = file_bytes(path, &n);
        for (size_t offset = 0; offset < 9; offset++) {
            fx_array *kept = NULL;
            {
                FX_SCOPE;
                void *file = load_lent(&l, bytes, n, offset);
                fx_array *x = f == 3 ? file : fx_child_named(file, "x");
                assert_int_equal(fx_size(x, 0), 2);
                assert_int_equal(fx_size(x, 1), 3);
                fx_set(&kept, x);
            }
            for (int i = 0; i < 6; i++)
                assert_true(fx_at(kept, i) == values[i]);
            fx_set(&kept, NULL);
            assert_int_equal(l.releases, 1);
        }
        FX_SCOPE;
        for (size_t part = 0; part < n; part += 1 + n / 20) {
            assert_true(fx_is_error(load_lent(&l, bytes, part, 0)));
            assert_int_equal(l.releases, 1);
            const fx_error e = fx_error_take();
            assert_int_equal(e.status, FX_STATUS_FORMAT);
            assert_ptr_equal(strstr(e.message, "load_bytes: the bytes: "), e.message);
        }
        free(bytes);
    }
    FX_SCOPE;
    assert_true(fx_is_error(load_lent(&l, "hello", 5, 0)));
    assert_string_equal(fx_error_take().message,
                        "load_bytes: the bytes: offset 0: unknown format: they start with "
                        "\"hello\"");
    l = (lent){.expected = NULL};
    assert_true(fx_is_error(fx_load_bytes(NULL, 5, give_back, &l)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(l.releases, 1);
    static const unsigned char constant[] = "\x93NUMPY";
    assert_true(fx_is_error(fx_load_bytes(constant, sizeof constant, NULL, NULL)));
    assert_int_equal(fx_error_take().status, FX_STATUS_FORMAT);
}

/* Aligned arrays of a safetensors file are used in place, as the header promises. */
static void aligned_bytes_are_not_copied(void **state)
{
    (void)state;
    size_t n;
    lent l;
    const char *path = temp_text("place.safetensors", "");
    fx_dense_layer *saved = fx_dense(3, 2), *m = fx_dense(3, 2);
    assert_int_equal(fx_save(path, "", saved), FX_OK);
    char *bytes = file_bytes(path, &n);
    {
        FX_SCOPE;
        void *file = load_lent(&l, bytes, n, 0);
        assert_int_equal(fx_loadmodel(m, file), FX_OK);
        assert_true(fx_item(fx_all(fx_eq(m->weight, saved->weight))) == 1);
    }
    const char *at = fx_data(m->weight), *start = l.expected;
    assert_int_equal(l.releases, 0); /* the model uses them */
    assert_true(at > start && at < start + n);
    free(bytes);
    assert_int_equal(fx_copy_into(m->weight, fx_zeros(2, 3)), FX_OK);
    assert_int_equal(fx_copy_into(m->bias, fx_zeros(2)), FX_OK);
    assert_int_equal(l.releases, 1);
}

/* A path to which fx_save cannot write is refused by fx_save_try with the same status and words.
 * Both make no call that writes: they ask for no file, except in a folder that does not exist. */
static void a_try_fails_where_a_save_does(void **state)
{
    (void)state;
    static const char *const extensions[] = {"npz", "npy", "safetensors", "bson"};
    const char *file = temp_file("file", "", 0);
    for (int i = 0; i < 4; i++) {
        FX_SCOPE;
        char folder[600], link[600], inside[700], nowhere[600];
        snprintf(folder, sizeof folder, "%s-folder.%s", file, extensions[i]);
        snprintf(link, sizeof link, "%s-link.%s", file, extensions[i]);
        snprintf(inside, sizeof inside, "%s/a.%s", file, extensions[i]);
        snprintf(nowhere, sizeof nowhere, "%s-none/a.%s", file, extensions[i]);
        assert_int_equal(mkdir(folder, 0700), 0);
        assert_int_equal(symlink(folder, link), 0);
        const char *const paths[] = {folder, link, inside, nowhere, "", "unknown.extension"};
        for (int k = 0; k < 6; k++) {
            void *object = fx_vector(1, 2), *loaded = object;
            const int64_t calls = k == 3; /* to make the file */
            fxi_file_fault_set(-1, 0);
            const fx_status saved = fx_save(paths[k], "array", object);
            assert_int_equal(fxi_file_fault_seen(), calls);
            const fx_error of_save = fx_error_take();
            fxi_file_fault_set(-1, 0);
            const fx_status tried =
                fx_save_try(paths[k], 2, (const void *[]){"array", object}, &loaded);
            assert_int_equal(fxi_file_fault_seen(), calls);
            const fx_error of_try = fx_error_take();
            assert_int_not_equal(saved, FX_OK);
            assert_int_equal(tried, saved);
            assert_string_equal(of_try.message, of_save.message);
            assert_null(loaded);
            if (k < 2)
                assert_non_null(strstr(of_try.message, "Is a directory"));
        }
        assert_int_equal(rmdir(folder), 0);
        assert_int_equal(unlink(link), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_is_named),
        cmocka_unit_test(metadata_by_key),
        cmocka_unit_test(what_wrote_a_file_is_narrowed_down),
        cmocka_unit_test(layers_of_one_version_say_it),
        cmocka_unit_test(what_is_no_file_of_these_is_refused),
        cmocka_unit_test(the_end_of_a_directory_by_its_members),
        cmocka_unit_test(numpy_files_are_looked_at),
        cmocka_unit_test(long_texts_of_numpy_are_refused),
        cmocka_unit_test(a_pipe_is_read),
        cmocka_unit_test(a_file_may_have_the_number_zero),
        cmocka_unit_test(a_damaged_checkpoint_is_seen),
        cmocka_unit_test(texts_are_entries),
        cmocka_unit_test(a_try_fails_where_a_save_does),
        cmocka_unit_test(bytes_are_a_file),
        cmocka_unit_test(aligned_bytes_are_not_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
