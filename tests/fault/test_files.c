/* test_files.c: makes every allocation fail in turn while a model is saved and loaded, in each
 * format, on the host and on a device. A call that reports success has done everything. A call that
 * fails records its own error and leaves model and file unchanged. Nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away.h"
#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "read_back.h"
#include "temp_file.h"

/* ---- formats --------------------------------------------------------------------------------- */

static fx_status save_arrays(const char *path, void *m)
{
    return fx_save(path, "model", m);
}
static fx_status load_arrays(const char *path, void *m)
{
    return fx_load_into(path, "model", m);
}

static fx_status save_texts(const char *path, void *m)
{
    return fx_save(path, "model", m, "", fx_metadata("author", "nobody"));
}
static fx_status load_texts(const char *path, void *m)
{
    void *file = fx_load(path);
    if (fx_is_error(file))
        return fx_error_status();
    const char *text = fx_metadata_text(fx_child_named(file, "__metadata__"), "author");
    assert_non_null(text);
    assert_string_equal(text, "nobody");
    return fx_load_into(path, "model", m);
}

/* A file of one array: the first of the model. */
static fx_status save_first(const char *path, void *m)
{
    return fx_save(path, "weight", ((fx_dense_layer *)fx_child(m, 0))->weight);
}
static fx_status load_first(const char *path, void *m)
{
    return fx_load_into(path, "weight", ((fx_dense_layer *)fx_child(m, 0))->weight);
}

static fx_status save_torch(const char *path, void *m)
{
    return fx_save(path, "", fx_torch_state(m));
}
static fx_status load_torch(const char *path, void *m)
{
    return fx_load_torch_state(m, fx_load(path));
}

/* A file in memory. */
static void give_back(void *data, void *user)
{
    (void)user;
    free(data);
}
static fx_status load_bytes(const char *path, void *m)
{
    size_t n;
    char *bytes = file_bytes(path, &n);
    void *file = fx_load_bytes(bytes, n, give_back, NULL);
    return fx_is_error(file) ? fx_error_status() : fx_loadmodel(m, fx_child_named(file, "model"));
}

static const struct {
    const char *name;
    fx_status (*save)(const char *path, void *m), (*load)(const char *path, void *m);
    int64_t same; /* elements of the model that are in the file, from the first; 0: all */
} formats[] = {{"faults.safetensors", save_texts, load_texts, 0},
               {"faults.npz", save_texts, load_texts, 0},
               {"faults.npy", save_first, load_first, 6},
               {"torch.safetensors", save_torch, load_torch, 0},
               {"faults.bson", save_arrays, load_arrays, 0},
               {"bytes.bson", save_arrays, load_bytes, 0}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* ---- one round ------------------------------------------------------------------------------- */

enum { ELEMENTS = 2 * 3 + 2 + 4 * 2 };

static void *model_of(fx_device *device, uint64_t seed)
{
    fx_seed(seed);
    fx_chain_layer *m = fx_chain(fx_dense(3, 2), fx_batchnorm(2));
    fx_batchnorm_layer *norm = fx_child(m, 1);
    fx_copy_into(norm->mean, fx_vector((double)seed, 2));
    m = fx_to(device, m);
    fx_eval(m);
    return m;
}

typedef struct elements {
    float v[ELEMENTS];
    int n;
} elements;

static void add(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    (void)trainable;
    elements *e = user;
    assert_true(e->n + fx_length(x) <= ELEMENTS);
    assert_int_equal(fx_read_into(x, e->v + e->n, (size_t)fx_length(x) * sizeof(float)), FX_OK);
    e->n += (int)fx_length(x);
}

static elements elements_of(void *m)
{
    elements e = {.n = 0};
    fx_visit(m, add, &e);
    assert_int_equal(e.n, ELEMENTS);
    return e;
}

/* The status of a call, checked against the record. */
static fx_status taken(fx_status status, const char *what, int64_t fault)
{
    const fx_error e = fx_error_take();
    const bool memory = status == FX_STATUS_MEMORY ||
                        (status == FX_STATUS_IO && strstr(e.message, "Cannot allocate memory"));
    if (e.status != status || (status != FX_OK && !memory))
        fail_msg("%s, fault %lld: status %d, record: %s", what, (long long)fault, (int)status,
                 e.message);
    return status;
}

/* Returns the number of calls that failed; *out_hit: was there an allocation of that number? */
static int save_and_load(int f, fx_device *device, int64_t fault, bool *out_hit)
{
    FX_SCOPE;
    const char *path = temp_text(formats[f].name, "");
    void *model = model_of(device, 1), *old = model_of(device, 2), *other = model_of(device, 3);
    assert_int_equal(formats[f].save(path, old), FX_OK);
    const elements first = elements_of(model), second = elements_of(old), own = elements_of(other);
    const size_t same = sizeof(float) * (size_t)(formats[f].same ? formats[f].same : ELEMENTS);

    fxi_fault_set(fault);
    const fx_status saved = formats[f].save(path, model);
    const bool in_save = fxi_fault_seen() > fault;
    taken(saved, formats[f].name, fault);
    const fx_status loaded = formats[f].load(path, other);
    *out_hit = fxi_fault_seen() > fault;
    fxi_fault_set(-1);
    taken(loaded, formats[f].name, fault);
    assert_true(saved == FX_OK || in_save);
    assert_true(loaded == FX_OK || (*out_hit && !in_save));

    const elements got = elements_of(other), *in_file = saved == FX_OK ? &first : &second;
    assert_memory_equal(got.v, loaded == FX_OK ? in_file->v : own.v, same);
    assert_int_equal(formats[f].load(path, other), FX_OK); /* the file is complete in any case */
    const elements again = elements_of(other);
    assert_memory_equal(again.v, in_file->v, same);
    return (saved != FX_OK) + (loaded != FX_OK);
}

static void fail_in_turn(fx_device *device)
{
    for (int f = 0; f < FORMATS; f++) {
        int64_t failed = 0, k = 0;
        bool hit;
        save_and_load(f, device, INT64_MAX, &hit);
        fxi_reclaim_all();
        const int64_t live = fxi_live_allocations();
        for (hit = true; hit; k++) {
            failed += save_and_load(f, device, k, &hit);
            fxi_reclaim_all();
            if (fxi_live_allocations() != live)
                fail_msg("%s: fault %lld leaks %lld allocations", formats[f].name, (long long)k,
                         (long long)(fxi_live_allocations() - live));
        }
        printf("%s: %lld of %lld allocations that failed were reported\n", formats[f].name,
               (long long)failed, (long long)k - 1);
        assert_true(failed >= 10 && failed >= (k - 1) / 2);
    }
}

static void on_the_host(void **state)
{
    (void)state;
    fail_in_turn(fx_cpu_device());
}

static void on_a_device(void **state)
{
    (void)state;
    fail_in_turn(away_register("Away", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_host),
                                       cmocka_unit_test(on_a_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
