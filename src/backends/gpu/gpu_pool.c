/* gpu_pool.c: max and mean pooling, their gradients, and picking by the position of the maximum.
 *
 * One work-item an element of the output. Kernels over windows go along the taps of one, in
 * column-major order, and skip those in the padding: the maximum is the first NaN, else the first
 * largest. Kernels over places ask of an element of x which windows hold it and add up what comes
 * from them in the order of the windows; so nothing is written by two. For the gradient of the
 * maximum a first kernel notes in scratch memory at which tap each window has it.
 */
#include "gpu_text.h"

/* Parameters. */
#define AXIS_PARAMS(X) X(XS) X(YS) X(TAPS) X(STRIDE) X(BEFORE) X(DILATION)
#define NUMBER(name)   name,
enum { AXIS_PARAMS(NUMBER) AXIS_PARAM_COUNT };
enum { PARAM_COUNT = 1 + 3 * AXIS_PARAM_COUNT }; /* the first: elements of the output */
#define NAME(name) #name,
static const char *const axis_names[] = {AXIS_PARAMS(NAME)};

typedef struct pooling {
    const fxi_gpu_type *type;
    int64_t v[3 * AXIS_PARAM_COUNT];
    int64_t windows, places; /* elements of y's sizes, of x's */
    bool wide;
} pooling;

static pooling pooling_of(const fx_step *s)
{
    const fx_pool_attr *a = &s->attr.pool;
    const bool back = a->kind == FX_POOL_MAX_GRAD || a->kind == FX_POOL_MEAN_GRAD;
    const fx_tensor *x = back ? &s->out : &s->in[0], *y = back ? &s->in[0] : &s->out;
    pooling p = {.type = &fxi_gpu_types[s->out.dtype],
                 .windows = fx_tensor_length(y),
                 .places = fx_tensor_length(x)};
    p.wide = fxi_gpu_wide(p.windows) || fxi_gpu_wide(p.places);
    for (int d = 0; d < 3; d++) {
        const bool there = d < a->spatial;
        const int64_t v[AXIS_PARAM_COUNT] = {
            [XS] = there ? x->shape[d] : 1,      [YS] = there ? y->shape[d] : 1,
            [TAPS] = there ? a->window[d] : 1,   [STRIDE] = there ? a->stride[d] : 1,
            [BEFORE] = there ? a->before[d] : 0, [DILATION] = there ? a->dilation[d] : 1};
        for (int k = 0; k < AXIS_PARAM_COUNT; k++)
            p.v[3 * k + d] = v[k];
        p.wide |= fxi_gpu_wide(v[XS] + v[BEFORE] + v[YS] * v[STRIDE] + v[TAPS] * v[DILATION]);
    }
    return p;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* EACH of the taps of a window that lie in x: the tap's digits k0 … k2, its place `at`. */
static const char over_windows[] =
    "    fx_int o3 = i;\n"
    "    const fx_int o0 = o3 % YS(0); o3 /= YS(0);\n"
    "    const fx_int o1 = o3 % YS(1); o3 /= YS(1);\n"
    "    const fx_int o2 = o3 % YS(2); o3 /= YS(2);\n"
    "    const fx_int a0 = o0 * STRIDE(0) - BEFORE(0), a1 = o1 * STRIDE(1) - BEFORE(1),\n"
    "        a2 = o2 * STRIDE(2) - BEFORE(2);\n"
    "    BEGIN\n"
    "    for (fx_int k2 = 0; k2 < TAPS(2); k2++) {\n"
    "        const fx_int x2 = a2 + k2 * DILATION(2);\n"
    "        if (x2 < 0 || x2 >= XS(2)) continue;\n"
    "        for (fx_int k1 = 0; k1 < TAPS(1); k1++) {\n"
    "            const fx_int x1 = a1 + k1 * DILATION(1);\n"
    "            if (x1 < 0 || x1 >= XS(1)) continue;\n"
    "            const fx_int row = XS(0) * (x1 + XS(1) * (x2 + XS(2) * o3));\n"
    "            for (fx_int k0 = 0; k0 < TAPS(0); k0++) {\n"
    "                const fx_int x0 = a0 + k0 * DILATION(0), at = row + x0;\n"
    "                if (x0 >= 0 && x0 < XS(0)) { EACH }\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    END\n";

/* EACH of the windows that hold a place: its number `at`, the digits k0 … k2 of the tap that the
 * place is. Along an axis the windows from LOW to HIGH reach it; with dilation some pass it by. */
static const char over_places[] =
    "    fx_int p3 = i;\n"
    "    const fx_int x0 = p3 % XS(0) + BEFORE(0); p3 /= XS(0);\n"
    "    const fx_int x1 = p3 % XS(1) + BEFORE(1); p3 /= XS(1);\n"
    "    const fx_int x2 = p3 % XS(2) + BEFORE(2); p3 /= XS(2);\n"
    "    const fx_int high0 = HIGH(0, x0), high1 = HIGH(1, x1), high2 = HIGH(2, x2);\n"
    "    BEGIN\n"
    "    for (fx_int o2 = LOW(2, x2); o2 <= high2; o2++) {\n"
    "        const fx_int k2 = (x2 - o2 * STRIDE(2)) / DILATION(2);\n"
    "        if (o2 * STRIDE(2) + k2 * DILATION(2) != x2) continue;\n"
    "        for (fx_int o1 = LOW(1, x1); o1 <= high1; o1++) {\n"
    "            const fx_int k1 = (x1 - o1 * STRIDE(1)) / DILATION(1);\n"
    "            if (o1 * STRIDE(1) + k1 * DILATION(1) != x1) continue;\n"
    "            for (fx_int o0 = LOW(0, x0); o0 <= high0; o0++) {\n"
    "                const fx_int k0 = (x0 - o0 * STRIDE(0)) / DILATION(0);\n"
    "                const fx_int at = o0 + YS(0) * (o1 + YS(1) * (o2 + YS(2) * p3));\n"
    "                if (o0 * STRIDE(0) + k0 * DILATION(0) == x0) { EACH }\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    END\n";

static const char definitions[] =
    "#define LENGTH P(0)\n"
    "#define REACH(d) ((TAPS(d) - 1) * DILATION(d))\n"
    "#define LOW(d, p) ((p) < REACH(d) ? 0 : ((p) - REACH(d) + STRIDE(d) - 1) / STRIDE(d))\n"
    "#define HIGH(d, p) ((p) / STRIDE(d) < YS(d) ? (p) / STRIDE(d) : YS(d) - 1)\n"
    "#define TAP (k0 + TAPS(0) * (k1 + TAPS(1) * k2))\n"
    "#define COUNT ((VALUE)(TAPS(0) * TAPS(1) * TAPS(2)))\n";

/* What is done with taps or windows. Buffers: what is read, `from`; the output, `to`; and `also`
 * what the kernel needs besides. */
typedef struct kernel {
    const char *name;
    bool places;      /* over places, else over windows */
    int from;         /* an operand */
    bool notes;       /* `to` is scratch memory: the number of the maximum's tap, or −1 */
    const char *also; /* NULL, or type of operand 0 (over windows) or of scratch (over places) */
    const char *begin, *each, *end;
} kernel;
enum { TAP_OF_MAX = FX_POOL_MAX_PICK + 1 };

#define TOP "VALUE top = LOWEST; fx_int best = -1;"
#define FIRST_LARGEST                                                                              \
    "const VALUE v = LOAD(from, at); if (best < 0 || LARGER(v, top)) { top = v; best = at; }"
#define FIRST_LARGEST_TAP                                                                          \
    "const VALUE v = LOAD(from, at); if (best < 0 || LARGER(v, top)) { top = v; best = TAP; }"
static const kernel kernels[] = {
    [FX_POOL_MAX] = {.name = "fx_pool_max",
                     .begin = TOP,
                     .each = FIRST_LARGEST,
                     .end = "STORE(to, i, top);"},
    [FX_POOL_MEAN] = {.name = "fx_pool_mean",
                      .begin = "VALUE sum = 0;",
                      .each = "sum += LOAD(from, at);",
                      .end = "STORE(to, i, sum / COUNT);"},
    [FX_POOL_MAX_GRAD] = {.name = "fx_pool_max_grad",
                          .places = true,
                          .also = "const fx_int",
                          .begin = "VALUE sum = 0;",
                          .each = "if (also[at] == TAP) sum += LOAD(from, at);",
                          .end = "STORE(to, i, sum);"},
    [FX_POOL_MEAN_GRAD] = {.name = "fx_pool_mean_grad",
                           .places = true,
                           .begin = "VALUE sum = 0;",
                           .each = "sum += LOAD(from, at);",
                           .end = "STORE(to, i, sum / COUNT);"},
    [FX_POOL_MAX_PICK] = {.name = "fx_pool_pick",
                          .from = 1,
                          .also = "const STORED",
                          .begin = TOP,
                          .each = FIRST_LARGEST,
                          .end = "to[i] = best < 0 ? (STORED)0 : also[best];"},
    [TAP_OF_MAX] = {.name = "fx_pool_tap",
                    .from = 1,
                    .notes = true,
                    .begin = TOP,
                    .each = FIRST_LARGEST_TAP,
                    .end = "to[i] = best;"},
};

static void say_kernel(fxi_gpu_builder *b, const pooling *p, const kernel *k)
{
    const fxi_gpu_type *t = p->type;
    fxi_gpu_begin(b, p->wide);
    fxi_gpu_kernel(b, k->name, k->also ? 3 : 2, PARAM_COUNT);
    for (int a = 0; a < AXIS_PARAM_COUNT; a++)
        fxi_gpu_say(b, "#define %s(d) P(%d + (d))\n", axis_names[a], 1 + 3 * a);
    /* NaN is above everything, and the first of several stays. */
    fxi_gpu_say(b,
                "#define STORED %s\n#define VALUE %s\n#define LOWEST %s\n"
                "#define LARGER(a, b) %s\n#define LOAD(x, i) FX_LOAD_%s(x, i)\n"
                "#define STORE(x, i, v) FX_STORE_%s(x, i, v)\n",
                t->stored, t->value, t->low, t->math ? "(b == b && (a != a || a > b))" : "(a > b)",
                t->name, t->name);
    fxi_gpu_say_text(b, definitions);
    fxi_gpu_say(b, "#define BEGIN %s\n#define EACH %s\n#define END %s\n", k->begin, k->each,
                k->end);
    fxi_gpu_say(b, "FX_USE(0, const STORED, from)\nFX_USE(1, %s, to)\n",
                k->notes ? "fx_int" : "STORED");
    if (k->also)
        fxi_gpu_say(b, "FX_USE(2, %s, also)\n", k->also);
    fxi_gpu_say(b, "    const fx_int i = FX_GROUP_X * FX_GROUP + FX_ITEM;\n"
                   "    if (i >= LENGTH) return;\n");
    fxi_gpu_say_text(b, k->places ? over_places : over_windows);
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */

static void add(fxi_gpu_builder *b, const pooling *p, const kernel *k, int64_t scratch)
{
    const int64_t length = k->places ? p->places : p->windows;
    if (length == 0)
        return;
    say_kernel(b, p, k);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_param(c, 0, length);
    for (int a = 0; a < 3 * AXIS_PARAM_COUNT; a++)
        fxi_gpu_param(c, 1 + a, p->v[a]);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, k->from);
    fxi_gpu_buffer(c, 1, k->notes ? FXI_GPU_SCRATCH : FXI_GPU_OUT, scratch);
    if (k->also)
        fxi_gpu_buffer(c, 2, k->places ? FXI_GPU_SCRATCH : FXI_GPU_IN, scratch);
    c->groups[0] = fxi_gpu_groups(length, FXI_GPU_GROUP);
}

void fxi_gpu_pool(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const int kind = s->attr.pool.kind;
    const pooling p = pooling_of(s);
    int64_t scratch = 0;
    if (!p.type->math && kind != FX_POOL_MAX && kind != FX_POOL_MAX_PICK) {
        fxi_gpu_fail(b, FX_STATUS_DTYPE, "there is no mean or gradient of %s", p.type->name);
        return;
    }
    if (kind == FX_POOL_MAX_GRAD && p.places > 0) {
        scratch = fxi_gpu_scratch(b, (p.windows + 1) * (p.wide ? 8 : 4));
        add(b, &p, &kernels[TAP_OF_MAX], scratch);
    }
    add(b, &p, &kernels[kind], scratch);
}
