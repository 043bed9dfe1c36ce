/* onnx_case.c: reads an ONNX case, runs its nodes one by one, compares its outputs.
 *
 * A case is a small graph: inputs, initializers, a list of nodes in order. Values are kept in a
 * table from name to array. Every case runs as it was recorded and once more with Float32 as
 * Float64; the results were recorded in Float32, so that the second run checks the Float64 paths to
 * Float32's bounds only.
 */
#include "onnx_case.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 96, MAX_PATH = 1024 };

typedef struct value {
    const char *name;
    fx_array *array;
} value;

typedef struct environment {
    value values[MAX_VALUES];
    int n;
    gold_kind kind; /* the widest kind of the nodes that ran */
} environment;

/* ---- attributes ------------------------------------------------------------------------------ */
bool onnx_has(const onnx_node *n, const char *attr)
{
    return gold_has(n->attrs, attr);
}

void onnx_ignore(const onnx_node *n, const char *attr)
{
    (void)gold_any(n->attrs, attr);
}

int64_t onnx_int(const onnx_node *n, const char *attr, int64_t otherwise)
{
    return (int64_t)gold_number(n->attrs, attr, (double)otherwise);
}

double onnx_real(const onnx_node *n, const char *attr, double otherwise)
{
    return gold_number(n->attrs, attr, otherwise);
}

const char *onnx_text(const onnx_node *n, const char *attr, const char *otherwise)
{
    return gold_text(n->attrs, attr, otherwise);
}

int onnx_ints(const onnx_node *n, const char *attr, int max, int64_t *out)
{
    const cJSON *a = gold_list(n->attrs, attr), *item;
    if (!a)
        return -1;
    int count = 0;
    cJSON_ArrayForEach(item, a) if (count < max) out[count++] = (int64_t)item->valuedouble;
    return count;
}

int onnx_read_ints(fx_array *x, int max, int64_t *out)
{
    const int64_t count = fx_length(x);
    if (count > max || fx_read_as(x, FX_DTYPE_I64, out, count) != FX_OK)
        return 0;
    return (int)count;
}

int onnx_ints_of(const onnx_node *n, int index, const char *attr, int max, int64_t *out)
{
    if (index < n->nin && n->in[index])
        return onnx_read_ints(n->in[index], max, out);
    return onnx_ints(n, attr, max, out);
}

/* TensorProto.DataType; types that cflux lacks are widened as in gold_tensor. */
fx_dtype onnx_dtype(int64_t code)
{
    static const fx_dtype table[] = {
        FX_DTYPE_COUNT, FX_DTYPE_F32, FX_DTYPE_U8,    FX_DTYPE_I32,   FX_DTYPE_I32,  FX_DTYPE_I32,
        FX_DTYPE_I32,   FX_DTYPE_I64, FX_DTYPE_COUNT, FX_DTYPE_BOOL,  FX_DTYPE_F16,  FX_DTYPE_F64,
        FX_DTYPE_I64,   FX_DTYPE_I64, FX_DTYPE_COUNT, FX_DTYPE_COUNT, FX_DTYPE_BF16,
    };
    return code > 0 && code < (int64_t)(sizeof table / sizeof *table) ? table[code]
                                                                      : FX_DTYPE_COUNT;
}

/* ---- NumPy's view ---------------------------------------------------------------------------- */
int np_axis(const fx_array *x, int64_t axis)
{
    return (int)(axis < 0 ? -axis - 1 : fx_ndims(x) - 1 - axis);
}

int64_t np_size(const fx_array *x, int64_t axis)
{
    return fx_size(x, np_axis(x, axis));
}

int np_shape(const fx_array *x, int64_t *sizes)
{
    const int n = fx_ndims(x);
    for (int i = 0; i < n; i++)
        sizes[i] = fx_size(x, n - 1 - i);
    return n;
}

unsigned np_axes(const fx_array *x, int n, const int64_t *axes)
{
    unsigned mask = 0;
    if (n <= 0)
        return (1u << (unsigned)fx_ndims(x)) - 1u;
    for (int i = 0; i < n; i++)
        mask |= 1u << (unsigned)np_axis(x, axes[i]);
    return mask;
}

fx_array *np_reshape(fx_array *x, int n, const int64_t *sizes)
{
    int64_t ours[FX_MAX_DIMS + 1];
    if (n > FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "golden", "%d dimensions", n));
    for (int i = 0; i < n; i++)
        ours[i] = sizes[n - 1 - i];
    return fxi_reshape(x, n, ours);
}

fx_array *np_transpose(fx_array *x, int n, const int64_t *perm)
{
    int64_t ours[FX_MAX_DIMS + 1];
    if (n > FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "golden", "%d dimensions", n));
    for (int i = 0; i < n; i++)
        ours[i] = n - 1 - perm[n - 1 - i];
    return fxi_permute(x, n, ours);
}

fx_array *np_iota(fx_dtype dtype, int64_t size, int axis, int n)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < n; i++)
        sizes[i] = i == axis ? size : 1;
    return fxi_reshape(fx_range_dtype(dtype, 0, 1, size), n, sizes);
}

fx_array *np_channels(fx_array *v, const fx_array *x)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(x) - 1;
    if (n < 1 || fx_is_error(x))
        return v;
    for (int i = 0; i < n; i++)
        sizes[i] = i == n - 1 ? fx_length(v) : 1;
    return fxi_reshape(v, n, sizes);
}

bool np_is_integer(const fx_array *x)
{
    const fx_dtype d = fx_eltype(x);
    return d == FX_DTYPE_I32 || d == FX_DTYPE_I64 || d == FX_DTYPE_U8;
}

/* ---- running a graph ------------------------------------------------------------------------- */
static const onnx_op *find_op(const char *name)
{
    static const onnx_op *const tables[] = {
        onnx_elementwise_ops, onnx_shape_ops,    onnx_reduce_ops, onnx_index_ops,
        onnx_window_ops,      onnx_resample_ops, onnx_train_ops,  onnx_recurrent_ops};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const onnx_op *op = tables[t]; op->name; op++)
            if (!strcmp(op->name, name))
                return op;
    return NULL;
}

static void env_set(environment *e, const char *name, fx_array *x)
{
    if (*name && e->n < MAX_VALUES)
        e->values[e->n++] = (value){name, x};
}

static fx_array *env_get(const environment *e, const char *name)
{
    for (int i = e->n - 1; *name && i >= 0; i--)
        if (!strcmp(e->values[i].name, name))
            return e->values[i].array;
    return NULL;
}

static const char *text_of(const cJSON *json, const char *field)
{
    return gold_text(json, field, "");
}

static void call_op(const onnx_op *op, onnx_node *n)
{
    if (op->run)
        op->run(n);
    else if (op->unary)
        n->out[0] = op->unary(n->in[0]);
    else
        n->out[0] = op->binary(fxi_arg_array(n->in[0]), fxi_arg_array(n->in[1]));
}

static int opset_of(const cJSON *json)
{
    const cJSON *sets = gold_any(json, "opset");
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(sets, "ai.onnx");
    if (!item)
        item = cJSON_GetObjectItemCaseSensitive(sets, "");
    return cJSON_IsNumber(item) ? item->valueint : 1;
}

static bool node_inputs(gold_case *c, const environment *e, const cJSON *json, onnx_node *n)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, gold_list(json, "inputs"))
    {
        if (n->nin == ONNX_MAX_ARGS) {
            gold_fail(c, "%s: more than %d inputs", n->op, ONNX_MAX_ARGS);
            return false;
        }
        fx_array *x = env_get(e, item->valuestring);
        if (!x && *item->valuestring) {
            gold_fail(c, "%s: its input %s is missing", n->op, item->valuestring);
            return false;
        }
        n->in[n->nin++] = x;
    }
    return true;
}

static void run_node(gold_case *c, environment *e, const cJSON *json, int opset)
{
    onnx_node n = {.op = text_of(json, "op"), .attrs = gold_any(json, "attrs"), .opset = opset};
    if (!node_inputs(c, e, json, &n))
        return;
    const cJSON *outputs = gold_list(json, "outputs"), *item;
    n.nout = cJSON_GetArraySize(outputs);
    const onnx_op *op = find_op(n.op);
    if (!op || n.nout > ONNX_MAX_ARGS) {
        if (!gold_not_built(c, n.op, NULL))
            gold_fail(c, "unknown operator %s", n.op);
        return;
    }
    const char *domain = text_of(json, "domain");
    if (*domain && strcmp(domain, "ai.onnx.preview.training") != 0)
        gold_fail(c, "%s: unknown domain %s", n.op, domain);
    gold_check_read(c, json, "node");
    gold_unread(n.attrs);
    call_op(op, &n);
    if (n.variant) {
        if (!gold_not_built(c, n.op, n.variant))
            gold_fail(c, "unknown form of operator %s: %s", n.op, n.variant);
        return;
    }
    gold_check_read(c, n.attrs, n.op);
    if (op->kind > e->kind)
        e->kind = op->kind;
    int i = 0;
    cJSON_ArrayForEach(item, outputs) env_set(e, item->valuestring, n.out[i++]);
}

/* ---- cases ----------------------------------------------------------------------------------- */
static void load_list(gold_case *c, environment *e, const char *folder, const cJSON *list,
                      fx_dtype real)
{
    const cJSON *spec;
    cJSON_ArrayForEach(spec, list)
    {
        gold_tensor t = {0};
        if (c->failed || c->not_built || !gold_load(c, folder, spec, &t))
            return;
        env_set(e, text_of(spec, "name"), gold_array(&t, real));
        gold_tensor_free(&t);
    }
}

static gold_rule rule_for(const gold_tensor *t, gold_kind kind, fx_dtype real)
{
    const gold_precision precision = t->dtype == FX_DTYPE_F16   ? GOLD_F16
                                     : t->dtype == FX_DTYPE_F64 ? GOLD_F64
                                                                : GOLD_F32;
    return (gold_rule){kind, precision, real == FX_DTYPE_COUNT ? t->dtype : FX_DTYPE_COUNT};
}

static void check_outputs(gold_case *c, const environment *e, const char *folder, const cJSON *list,
                          fx_dtype real)
{
    const cJSON *spec;
    cJSON_ArrayForEach(spec, list)
    {
        gold_tensor t = {0};
        char what[160];
        if (c->failed || !gold_load(c, folder, spec, &t))
            return;
        snprintf(what, sizeof what, "output %.60s%s", text_of(spec, "name"),
                 real == FX_DTYPE_COUNT ? "" : " in Float64");
        gold_compare(c, what, &t, env_get(e, text_of(spec, "name")), rule_for(&t, e->kind, real));
        gold_tensor_free(&t);
    }
}

static void run_once(gold_case *c, const char *folder, const cJSON *json, fx_dtype real)
{
    FX_TEST;
    environment *e = gold_alloc(sizeof *e);
    load_list(c, e, folder, gold_list(json, "inputs"), real);
    load_list(c, e, folder, gold_list(json, "initializers"), real);
    const cJSON *node;
    cJSON_ArrayForEach(node, gold_list(json, "nodes"))
    {
        if (!c->failed && !c->not_built)
            run_node(c, e, node, opset_of(json));
    }
    if (!c->not_built)
        check_outputs(c, e, folder, gold_list(json, "outputs"), real);
    free(e);
    gold_check_record(c);
}

/* Cases whose recorded values were computed with an attribute that the node does not have. */
static const struct amendment {
    const char *name, *attr;
    double value;
} amendments[] = {
    {"node__adam_multiple", "epsilon",
     1e-2}, /* ONNX 1.12 computed it with its own ε, not the default */
};

static void amend(const char *name, const cJSON *json)
{
    cJSON *attrs =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(gold_list(json, "nodes"), 0), "attrs");
    for (size_t i = 0; i < sizeof amendments / sizeof *amendments; i++)
        if (!strcmp(amendments[i].name, name) && !cJSON_HasObjectItem(attrs, amendments[i].attr))
            cJSON_AddNumberToObject(attrs, amendments[i].attr, amendments[i].value);
}

static void run_case(gold_run *run, const char *name)
{
    gold_case c = {0};
    snprintf(c.name, sizeof c.name, "onnx/%s", name);
    if (!gold_selected(run, c.name))
        return;
    char folder[MAX_PATH / 2], path[MAX_PATH];
    snprintf(folder, sizeof folder, "%s/onnx/%s", gold_data(run), name);
    snprintf(path, sizeof path, "%s/case.json", folder);
    cJSON *json = gold_json_read(path);
    if (!json)
        gold_fail(&c, "%.700s: not there or not JSON", path);
    static const char *const parts[] = {"name",   "source",       "opset",  "nodes",
                                        "inputs", "initializers", "outputs"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        (void)gold_any(json, parts[i]);
    gold_check_read(&c, json, "case");
    amend(name, json);
    const fx_dtype passes[] = {FX_DTYPE_COUNT, FX_DTYPE_F64};
    for (size_t i = 0; json && i < 2 && !c.failed && !c.not_built; i++)
        run_once(&c, folder, json, passes[i]);
    cJSON_Delete(json);
    gold_record(run, &c);
}

void onnx_run_all(gold_run *run)
{
    cJSON *index = gold_index(run, "onnx/index.json");
    const char **names = gold_alloc((size_t)cJSON_GetArraySize(index) * sizeof *names);
    const cJSON *entry;
    int n = 0;
    cJSON_ArrayForEach(entry, index)
    {
        names[n++] = text_of(entry, "case");
        run_case(run, names[n - 1]);
    }
    gold_unlisted(run, "onnx", n, names);
    free(names);
    cJSON_Delete(index);
}
