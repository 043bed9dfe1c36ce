/* gpu_steps_attention.c: attention steps of all kinds, for each division of the rows and features
 * (gpu_attention.c). They are not in the list of gpu_visit, because only CUDA has kernels for them.
 */
#include "gpu_cases.h"

#include <stdio.h>

typedef struct sizes {
    int64_t features, value_features, queries, keys, heads, batch;
} sizes;

static const sizes all[] = {
    {64, 64, 1024, 1024, 16, 2}, {128, 128, 200, 300, 4, 1},        {80, 96, 100, 65, 2, 3},
    {16, 40, 513, 64, 2, 1},     {64, 64, 1 << 20, 1 << 20, 32, 1},
};

static fx_tensor operand(int dtype, int64_t rows, int64_t length, int64_t batch)
{
    return gpu_dense(dtype, 3, (const int64_t[]){rows, length, batch});
}

/* A forward step that also stores the logarithms, after the four kinds. */
enum { WITH_LOGS = 4, KINDS };

static void add(gpu_visits *v, const sizes *z, int which, int dtype, bool masked)
{
    static const char *const names[] = {"forward", "logsumexp", "query", "key_value",
                                        "forward_logs"};
    const int kind = which == WITH_LOGS ? FX_ATTENTION_FORWARD : which;
    gpu_case c = {.step = {.cls = FX_CLASS_ATTENTION, .op = FX_OP_ATTENTION, .nin = 6}};
    const bool wide = z->queries > 1 << 16;
    fx_attention_step *a = &c.step.as.attention;
    const int64_t q = z->features * z->heads, values = z->value_features * z->heads;
    *a = (fx_attention_step){.kind = (uint8_t)kind,
                             .causal = true,
                             .scale = 0.125,
                             .features = z->features,
                             .value_features = z->value_features,
                             .heads = z->heads,
                             .queries = z->queries,
                             .keys = z->keys,
                             .batch = z->batch,
                             .more.n = which == WITH_LOGS};
    c.in[0] = operand(dtype, q, z->queries, z->batch);
    c.in[1] = operand(dtype, q, z->keys, z->batch);
    c.in[2] = operand(dtype, values, z->keys, z->batch);
    c.in[3] = operand(dtype, values, z->queries, z->batch);
    c.in[4] = c.in[5] = operand(FX_DTYPE_F32, z->heads, z->queries, z->batch);
    const fx_tensor out[] = {c.in[3], c.in[4], c.in[0],
                             operand(dtype, q + values, z->keys, z->batch)};
    c.step.out = out[kind];
    if (kind == FX_ATTENTION_FORWARD)
        c.step.nin = 3;
    if (kind == FX_ATTENTION_LOGSUMEXP) {
        c.step.nin = 2;
        a->value_features = 0;
    }
    if (masked) {
        a->mask = (uint8_t)c.step.nin;
        c.in[c.step.nin++] =
            gpu_dense(FX_DTYPE_BOOL, 4, (const int64_t[]){z->keys, 1, 1, z->batch});
    }
    snprintf(c.name, sizeof c.name, "attention.%s.%s.%d.%d%s%s", names[which],
             gpu_type_names[dtype], (int)z->features, (int)z->value_features,
             masked ? ".masked" : "", wide ? ".wide" : "");
    gpu_show(v, &c);
}

int gpu_visit_attention(gpu_visitor visit, void *user)
{
    gpu_visits v = {visit, user, 0};
    for (int k = 0; k < (int)(sizeof all / sizeof *all); k++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int t = 0; t < (k == 0 ? 2 : 1); t++)
                for (int masked = 0; masked < 2; masked++)
                    add(&v, &all[k], kind, t == 0 ? FX_DTYPE_BF16 : FX_DTYPE_F16, masked);
    return v.count;
}
