/* torch_case.c: reads a PyTorch case, runs its operator, compares outputs and gradients.
 *
 * Inputs were recorded in Float32, results were computed from them in Float64. So every case runs
 * in Float64, to nearly full precision, and in Float32. An operator may have several rows (an
 * operation and its layer); each is run by itself.
 */
#include "torch_case.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 1024 };

bool torch_has(const torch_node *t, const char *attr)
{
    return gold_has(t->attrs, attr);
}

void torch_only(torch_node *t, const char *attr, double value)
{
    const cJSON *a = gold_any(t->attrs, attr);
    if (a && (cJSON_IsBool(a) ? cJSON_IsTrue(a) : cJSON_GetNumberValue(a)) != value)
        t->variant = attr;
}

bool torch_flag(const torch_node *t, const char *attr)
{
    return gold_flag(t->attrs, attr);
}

double torch_real(const torch_node *t, const char *attr, double otherwise)
{
    return gold_number(t->attrs, attr, otherwise);
}

const char *torch_text(const torch_node *t, const char *attr, const char *otherwise)
{
    return gold_text(t->attrs, attr, otherwise);
}

fx_dims torch_spatial(const torch_node *t, const char *attr, int nd, int64_t otherwise)
{
    const cJSON *list = gold_list(t->attrs, attr);
    const double all = gold_number(t->attrs, attr, (double)otherwise);
    fx_dims d = {.n = nd};
    for (int i = 0; i < nd; i++)
        d.v[i] = (int64_t)(list ? cJSON_GetNumberValue(cJSON_GetArrayItem(list, nd - 1 - i)) : all);
    return d;
}

static torch_array *find(torch_list *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->items[i].name, name))
            return &list->items[i];
    return NULL;
}

fx_array *torch_in(const torch_node *t, const char *name)
{
    torch_array *a = find((torch_list *)&t->in, name);
    if (a)
        a->used = true;
    return a ? a->array : NULL;
}

void torch_out(torch_node *t, const char *name, fx_array *x)
{
    torch_array *a = find(&t->out, name);
    if (a)
        a->array = x;
}

/* ---- gradients ------------------------------------------------------------------------------- */
/* The upstream gradient of an output: "gy" for y, "gy_hn" for hn. */
static fx_array *upstream(const torch_node *t, const char *output)
{
    char name[64];
    snprintf(name, sizeof name, "gy_%.50s", output);
    fx_array *gy = torch_in(t, name);
    return gy || strcmp(output, "y") ? gy : torch_in(t, "gy");
}

/* One output: the pullback. Several: the gradient of the sum of products. */
void torch_gradients(torch_node *t)
{
    fx_array *x[TORCH_MAX_ARRAYS], *g[TORCH_MAX_ARRAYS] = {NULL}, *loss = NULL, *y = NULL,
                                   *gy = NULL;
    int outputs = 0;
    for (int i = 0; i < t->grad.n; i++)
        x[i] = torch_in(t, t->grad.items[i].name);
    for (int i = 0; i < t->out.n; i++) {
        fx_array *up = upstream(t, t->out.items[i].name);
        if (!up || !t->out.items[i].array)
            continue;
        y = t->out.items[i].array;
        gy = up;
        outputs++;
        fx_array *term = fx_sum(fx_mul(y, gy));
        loss = loss ? fx_add(loss, term) : term;
    }
    t->gradients_taken = true;
    if (!outputs || !t->grad.n)
        return;
    if (outputs == 1)
        fx_pullback(y, gy, x, t->grad.n, g);
    else
        fx_gradient_of(loss, x, t->grad.n, g);
    for (int i = 0; i < t->grad.n; i++)
        t->grad.items[i].array = g[i];
}

/* ---- cases ----------------------------------------------------------------------------------- */
static void load_list(gold_case *c, torch_list *list, const char *folder, const cJSON *specs)
{
    const cJSON *spec;
    cJSON_ArrayForEach(spec, specs)
    {
        if (list->n == TORCH_MAX_ARRAYS) {
            gold_fail(c, "more than %d arrays", TORCH_MAX_ARRAYS);
            return;
        }
        torch_array *a = &list->items[list->n++];
        a->name = spec->string;
        gold_load(c, folder, spec, &a->recorded);
    }
}

static void free_list(torch_list *list)
{
    for (int i = 0; i < list->n; i++)
        gold_tensor_free(&list->items[i].recorded);
}

static void compare_list(gold_case *c, const torch_node *t, const torch_list *list,
                         const char *word, const torch_op *op)
{
    for (int i = 0; i < list->n; i++) {
        char what[160];
        snprintf(what, sizeof what, "%s %.60s in %s", word, list->items[i].name,
                 fx_dtype_name(t->real));
        const gold_precision precision = t->real == FX_DTYPE_F64 ? GOLD_F64 : GOLD_F32;
        gold_compare(c, what, &list->items[i].recorded, list->items[i].array,
                     (gold_rule){op->kind, precision, t->real});
    }
}

static void run_row(gold_case *c, torch_node *t, const torch_op *op)
{
    FX_TEST;
    t->gradients_taken = false;
    gold_unread(t->attrs);
    (void)gold_any(t->attrs, "note");
    for (int i = 0; i < t->in.n; i++) {
        t->in.items[i].array = gold_array(&t->in.items[i].recorded, t->real);
        t->in.items[i].used = false;
    }
    for (int i = 0; i < t->out.n; i++)
        t->out.items[i].array = NULL;
    for (int i = 0; i < t->grad.n; i++)
        t->grad.items[i].array = NULL;
    if (op->run)
        op->run(t);
    else
        torch_out(t, "y", op->unary(torch_in(t, "x")));
    if (t->variant)
        return;
    gold_check_read(c, t->attrs, t->op);
    if (!t->gradients_taken)
        torch_gradients(t);
    for (int i = 0; i < t->in.n; i++)
        if (!t->in.items[i].used)
            gold_fail(c, "%s: input %s is not used", t->op, t->in.items[i].name);
    compare_list(c, t, &t->out, "output", op);
    compare_list(c, t, &t->grad, "gradient", op);
    gold_check_record(c);
}

static void run_rows(gold_case *c, torch_node *t)
{
    static const torch_op *const others[] = {torch_array_ops, torch_layer_ops, torch_loss_ops};
    static const torch_op *const optims[] = {torch_optim_ops};
    const bool optim = !strncmp(t->group, "optim_", 6) || !strcmp(t->group, "schedule");
    const size_t ntables = optim ? 1 : sizeof others / sizeof *others;
    int rows = 0;
    for (size_t k = 0; k < ntables && !t->variant; k++)
        for (const torch_op *op = (optim ? optims : others)[k]; op->name && !t->variant; op++)
            if (!strcmp(op->name, t->op)) {
                rows++;
                t->real = FX_DTYPE_F64;
                run_row(c, t, op);
                t->real = FX_DTYPE_F32;
                if (!t->variant)
                    run_row(c, t, op);
            }
    if (rows && !t->variant)
        return;
    fx_error_take();
    if (!gold_not_built(c, t->op, t->variant))
        gold_fail(c, "unknown operator %s%s%s", t->op, t->variant ? ", form " : "",
                  t->variant ? t->variant : "");
}

static void run_json(gold_case *c, const char *folder, const cJSON *json)
{
    torch_node *t = gold_alloc(sizeof *t);
    t->op = gold_text(json, "op", "");
    t->group = gold_text(json, "group", "");
    t->attrs = gold_any(json, "attrs");
    load_list(c, &t->in, folder, gold_any(json, "inputs"));
    load_list(c, &t->out, folder, gold_any(json, "outputs"));
    load_list(c, &t->grad, folder, gold_any(json, "grads"));
    (void)gold_any(json, "name"), (void)gold_any(json, "note");
    gold_check_read(c, json, "case");
    if (!c->failed)
        run_rows(c, t);
    free_list(&t->in);
    free_list(&t->out);
    free_list(&t->grad);
    free(t);
}

static void run_case(gold_run *run, const char *dir)
{
    gold_case c = {0};
    snprintf(c.name, sizeof c.name, "torch/%s", dir);
    if (!gold_selected(run, c.name))
        return;
    char folder[MAX_PATH / 2], path[MAX_PATH];
    snprintf(folder, sizeof folder, "%s/%s", gold_data(run), c.name);
    snprintf(path, sizeof path, "%s/case.json", folder);
    cJSON *json = gold_json_read(path);
    if (json)
        run_json(&c, folder, json);
    else
        gold_fail(&c, "%.700s: not there or not JSON", path);
    cJSON_Delete(json);
    gold_record(run, &c);
}

void torch_run_all(gold_run *run)
{
    cJSON *index = gold_index(run, "torch/index.json");
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(index, "cases"), *entry;
    const char **names = gold_alloc((size_t)cJSON_GetArraySize(cases) * sizeof *names);
    int n = 0;
    cJSON_ArrayForEach(entry, cases)
    {
        names[n++] = gold_text(entry, "dir", "?");
        run_case(run, names[n - 1]);
    }
    gold_unlisted(run, "torch", n, names);
    free(names);
    cJSON_Delete(index);
}
