/* nnlib_case.c: the tables of expected results in NNlib's own tests of convolution and pooling.
 *
 * x and w are 1, 2, 3, … in column-major order, so nothing is reversed here. The name of a table
 * gives its content and its options: y, dx or dw; _stride, _pad, _dil, _flip, _nostride. The
 * upstream gradient of dx and dw is y itself. NNlib's conv is a true convolution (`.flipped =
 * false`), _flip is not. Every convolution is also computed as the other kind, with its kernel
 * reversed; the results, and the gradients, must be the same.
 */
#include "golden.h"

#include <stdlib.h>
#include <string.h>

typedef struct table {
    const char *kind; /* conv, maxpool, meanpool, lpnormpool */
    const cJSON *rank;
    int nd;
    char target[16], form[16]; /* "dx", "stride" */
    bool reversed;             /* conv: computed with the reversed kernel */
    fx_dtype real;
} table;

static void dims_of(const cJSON *entry, int *n, int64_t *sizes)
{
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(entry, "size"), *item;
    *n = 0;
    cJSON_ArrayForEach(item, size)
    {
        if (*n < FX_MAX_DIMS - 2)
            sizes[(*n)++] = (int64_t)item->valuedouble;
    }
}

/* 1, 2, 3, … in the size of the rank's table `name`, one channel, one observation. */
static fx_array *counting(const table *t, const char *name)
{
    int n;
    int64_t sizes[FX_MAX_DIMS], count = 1;
    dims_of(cJSON_GetObjectItemCaseSensitive(t->rank, name), &n, sizes);
    sizes[n] = sizes[n + 1] = 1;
    for (int i = 0; i < n; i++)
        count *= sizes[i];
    return fxi_reshape(fx_range_dtype(t->real, 1, 1, count), n + 2, sizes);
}

static bool form_is(const table *t, const char *form)
{
    return strcmp(t->form, form) == 0;
}

static fx_dims same(const table *t, int64_t v)
{
    fx_dims d = {.n = t->nd};
    for (int i = 0; i < t->nd; i++)
        d.v[i] = v;
    return d;
}

static fx_array *convolution(const table *t, fx_array *x, fx_array *w)
{
    const bool flipped = form_is(t, "flip") != t->reversed;
    if (t->reversed)
        w = fx_flip(w, FXI_AXES((1u << (unsigned)t->nd) - 1u));
    return fx_convolve(x, w, .stride = same(t, form_is(t, "stride") ? 2 : 1),
                       .pad = same(t, form_is(t, "pad")),
                       .dilation = same(t, form_is(t, "dil") ? 2 : 1), .flipped = flipped);
}

static fx_array *pooling(const table *t, fx_array *x)
{
    const fx_dims window = same(t, 2), pad = same(t, form_is(t, "pad")),
                  stride = same(t, form_is(t, "nostride") ? 1 : 2);
    if (!strcmp(t->kind, "maxpool"))
        return fx_pool_max(x, window, .pad = pad, .stride = stride);
    if (!strcmp(t->kind, "meanpool"))
        return fx_pool_mean(x, window, .pad = pad, .stride = stride);
    char name[24];
    snprintf(name, sizeof name, t->form[0] ? "p_%s" : "p%s", t->form);
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(t->rank, name);
    const double p = value ? value->valuedouble : 2;
    return fx_pool_lpnorm(x, window, .pad = pad, .stride = stride, .p = p);
}

/* The recorded arrays have no channel and observation axes. */
static fx_array *bare(const table *t, fx_array *y)
{
    return fx_squeeze(y, FX_AXES(t->nd, t->nd + 1));
}

static fx_array *compute(const table *t)
{
    fx_array *x = counting(t, "dx"), *w = NULL, *g = NULL;
    const bool conv = !strcmp(t->kind, "conv");
    if (conv)
        w = counting(t, "dw");
    fx_array *y = conv ? convolution(t, x, w) : pooling(t, x);
    if (!strcmp(t->target, "y"))
        return bare(t, y);
    fx_array *by = !strcmp(t->target, "dw") ? w : x;
    fx_pullback(y, fx_stop_gradient(y), &by, 1, &g);
    return g ? bare(t, g) : NULL;
}

static bool read_answer(const cJSON *entry, gold_tensor *out)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(entry, "data"), *item;
    *out = (gold_tensor){.dtype = FX_DTYPE_F64, .count = cJSON_GetArraySize(data)};
    dims_of(entry, &out->ndims, out->sizes);
    int64_t count = 1, i = 0;
    for (int k = 0; k < out->ndims; k++)
        count *= out->sizes[k];
    if (count != out->count || !out->ndims)
        return false;
    out->real = gold_alloc((size_t)count * sizeof *out->real);
    cJSON_ArrayForEach(item, data) out->real[i++] = item->valuedouble;
    return true;
}

static void run_once(gold_case *c, const table *t, const gold_tensor *want)
{
    FX_TEST;
    /* The norm-pooling answers were written down to three digits. */
    const gold_precision precision = !strcmp(t->kind, "lpnormpool") ? GOLD_F16
                                     : t->real == FX_DTYPE_F64      ? GOLD_F64
                                                                    : GOLD_F32;
    char what[96];
    snprintf(what, sizeof what, "%s in %s%s", t->target, fx_dtype_name(t->real),
             t->reversed ? ", kernel reversed" : "");
    gold_compare(c, what, want, compute(t), (gold_rule){GOLD_CONTRACTION, precision, t->real});
    gold_check_record(c);
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names;
}

/* A number in a table is the p of a norm; everything else is an expected result. */
static void understand(gold_case *c, const table *t, const cJSON *entry)
{
    static const char *const kinds[] = {"conv", "maxpool", "meanpool", "lpnormpool", NULL};
    static const char *const targets[] = {"y", "dx", "dw", NULL};
    static const char *const forms[] = {"", "stride", "pad", "dil", "flip", "nostride", NULL};
    static const char *const norms[] = {"p", "p_pad", "p_nostride", NULL};
    const bool norm =
        !strcmp(t->kind, "lpnormpool") && cJSON_IsNumber(entry) && is_one_of(entry->string, norms);
    if (!norm && !(cJSON_IsObject(entry) && is_one_of(t->kind, kinds) &&
                   is_one_of(t->target, targets) && is_one_of(t->form, forms)))
        gold_fail(c, "a table that is not understood");
}

static void run_entry(gold_run *run, const char *kind, const cJSON *rank, const cJSON *entry)
{
    gold_case c = {0};
    snprintf(c.name, sizeof c.name, "nnlib/%s/%s/%s", kind, rank->string, entry->string);
    if (!gold_selected(run, c.name))
        return;
    table t = {.kind = kind, .rank = rank};
    gold_tensor want = {0};
    const char *form = strchr(entry->string, '_');
    snprintf(t.target, sizeof t.target, "%.*s", (int)strcspn(entry->string, "_"), entry->string);
    snprintf(t.form, sizeof t.form, "%s", form ? form + 1 : "");
    understand(&c, &t, entry);
    if (cJSON_IsNumber(entry) && !c.failed)
        return;
    if (!c.failed && !read_answer(entry, &want))
        gold_fail(&c, "size and data of the table do not agree");
    t.nd = want.ndims;
    const bool conv = !strcmp(kind, "conv");
    for (int pass = 0; pass < (conv ? 4 : 2) && !c.failed; pass++) {
        t.real = pass % 2 ? FX_DTYPE_F32 : FX_DTYPE_F64;
        t.reversed = pass >= 2;
        run_once(&c, &t, &want);
    }
    gold_tensor_free(&want);
    gold_record(run, &c);
}

void nnlib_run_all(gold_run *run)
{
    cJSON *json = gold_index(run, "flux/nnlib_conv_pool.json");
    const cJSON *kind, *rank, *entry;
    cJSON_ArrayForEach(kind, cJSON_GetObjectItemCaseSensitive(json, "facts"))
    {
        cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(kind, "ranks"))
        {
            cJSON_ArrayForEach(entry, rank) run_entry(run, kind->string, rank, entry);
        }
    }
    cJSON_Delete(json);
}
