/* gpu_matmul.c: matrix products of all types, in batches, with an epilogue.
 *
 * One kernel text with the tile's sizes as constants. A group computes a tile of BM×BN elements: it
 * goes along the inner axis in steps of BK, copies its parts of both operands into local memory,
 * whatever their strides are, and each work-item multiplies what belongs to its RM×RN elements from
 * there in registers. Elements of one work-item lie TX (and TY) apart, so that neighbours read and
 * write neighbouring memory.
 *
 * On GPUs 16×16 work-items have one such block each. On a CPU, which runs the work-items of a group
 * one after another, a group is a single one with MT·NT blocks: local memory is then the cache, and
 * the block's registers are vectors. Which tile is taken depends on how many groups there are: the
 * largest that still keeps all units busy.
 *
 * 16-bit floats are added up in Float32 and integers modulo their width. The sum is rounded to the
 * output's type before the epilogue's first instruction, as if the product were a step of its own.
 */
#include "gpu_text.h"

typedef struct tile {
    int tx, ty; /* work-items */
    int rm, rn; /* elements of a block */
    int mt, nt; /* blocks of a work-item */
    int bk;     /* 4-byte elements of the inner axis at a time */
} tile;

/* From the largest to the smallest. */
static const tile parallel_tiles[] = {
    {16, 16, 8, 8, 1, 1, 8},
    {16, 16, 4, 4, 1, 1, 16},
    {16, 16, 2, 2, 1, 1, 32},
    {16, 16, 1, 1, 1, 1, 32},
    {0},
};
static const tile serial_tiles[] = {
    {1, 1, 16, 6, 4, 8, 64}, {1, 1, 16, 6, 2, 4, 64}, {1, 1, 16, 6, 1, 2, 64}, {0}};

static int64_t ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

typedef struct product {
    const fx_step *step;
    const fxi_gpu_type *type;
    int64_t m, n, k, am, ak, bk, bn;
    int operands;                  /* of the epilogue */
    int pattern[FXI_GPU_PATTERNS]; /* of each input over the batch */
    fxi_gpu_walk batch;
    tile tile;
    int64_t tiles_m, tiles_n, batches;
} product;

/* ---- what is to be done ---------------------------------------------------------------------- */

/* The walks of all inputs over the batch's axes; an axis of size 1 is repeated. */
static void walk_batch(product *p, const fx_step *s)
{
    fxi_gpu_layout l = {.nd = s->out.ndim - 2};
    for (int d = 0; d < l.nd; d++)
        l.shape[d] = s->out.shape[d + 2];
    for (int i = 0; i < s->nin; i++) {
        const fx_tensor *t = &s->in[i];
        int64_t strides[FX_MAX_DIMS] = {0};
        for (int d = 2; d < t->ndim; d++)
            strides[d - 2] = t->shape[d] != 1 ? t->stride[d] : 0;
        p->pattern[i] = fxi_gpu_layout_add(&l, strides);
    }
    p->batch = fxi_gpu_walk_over(&l, UINT32_MAX);
    p->batches = fxi_gpu_walk_length(&p->batch);
}

static product product_of(const fx_step *s)
{
    const fx_tensor *a = &s->in[0], *b = &s->in[1];
    const bool ta = s->attr.i[0] != 0, tb = s->attr.i[1] != 0;
    product p = {.step = s,
                 .type = &fxi_gpu_types[s->out.dtype],
                 .m = s->out.shape[0],
                 .n = s->out.shape[1],
                 .k = a->shape[!ta],
                 .am = a->stride[ta],
                 .ak = a->stride[!ta],
                 .bk = b->stride[tb],
                 .bn = b->stride[!tb],
                 .operands = s->nin - 2};
    walk_batch(&p, s);
    return p;
}

static int64_t tiles_of(product *p, const tile *t)
{
    p->tiles_m = ceil_div(p->m, t->tx * t->rm * t->mt);
    p->tiles_n = ceil_div(p->n, t->ty * t->rn * t->nt);
    return p->tiles_m * p->tiles_n * p->batches;
}

static void choose_tile(product *p, const fxi_gpu_limits *limits)
{
    const tile *t = limits->serial ? serial_tiles : parallel_tiles;
    const bool long_elements = p->type->size == 8;
    if (long_elements && !limits->serial)
        t++; /* too many registers */
    while (tiles_of(p, t) < limits->units && t[1].tx > 0)
        t++;
    tiles_of(p, t);
    p->tile = *t;
    if (long_elements) {
        p->tile.bk /= 2;
        if (limits->serial) {
            p->tile.rm /= 2;
            p->tile.mt *= 2;
        }
    }
}

/* Is an operand, or the output, larger than 32-bit indices reach? */
static bool is_wide(const fx_step *s)
{
    bool wide = fxi_gpu_wide(fx_tensor_length(&s->out));
    for (int i = 0; i < s->nin; i++) {
        const fx_tensor *t = &s->in[i];
        int64_t far = 0;
        for (int d = 0; d < t->ndim; d++)
            far += (t->shape[d] - 1) * (t->stride[d] < 0 ? -t->stride[d] : t->stride[d]);
        wide |= fxi_gpu_wide(far);
    }
    return wide;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Parameters; two an operand of the epilogue and those of the batch follow. */
enum { ROWS, COLUMNS, INNER, A_ROW, A_INNER, B_INNER, B_COLUMN, TILES_M, TILES_N, OPERANDS };
static const char names[] =
    "#define ROWS P(0)\n#define COLUMNS P(1)\n#define INNER P(2)\n#define A_ROW P(3)\n"
    "#define A_INNER P(4)\n#define B_INNER P(5)\n#define B_COLUMN P(6)\n#define TILES_M P(7)\n"
    "#define TILES_N P(8)\n";

static int first_of_batch(const product *p)
{
    return OPERANDS + 2 * p->operands;
}

static void say_constants(fxi_gpu_builder *b, const product *p)
{
    const tile *t = &p->tile;
    const fxi_gpu_type *type = p->type;
    fxi_gpu_say(b,
                "#define TX %d\n#define TY %d\n#define RM %d\n#define RN %d\n#define MT %d\n"
                "#define NT %d\n#define BK %d\n#define BM (TX * RM * MT)\n"
                "#define BN (TY * RN * NT)\n",
                t->tx, t->ty, t->rm, t->rn, t->mt, t->nt, t->bk);
    fxi_gpu_say(b, "#define EACH%s\n", t->mt * t->nt > 1 ? "" : " FX_UNROLL");
    fxi_gpu_say(b, "#define SUM %s\n#define LOAD(x, i) (SUM)FX_LOAD_%s(x, i)\n",
                type->wrapping ? type->wrapping : type->value, type->name);
    if (type->math)
        fxi_gpu_say(b, "#define MAD(x, y, z) FX_MAD(x, y, z)\n");
    else
        fxi_gpu_say(b, "#define MAD(x, y, z) (SUM)((x) * (y) + (z))\n");
    fxi_gpu_say(b, "    FX_USE(0, const %s, a)\n    FX_USE(1, const %s, b)\n    FX_USE(2, %s, c)\n",
                type->stored, type->stored, type->stored);
    for (int i = 0; i < p->operands; i++)
        fxi_gpu_say(b, "    FX_USE(%d, const %s, x%d)\n", 3 + i, type->stored, 1 + i);
}

/* Copies a tile of an operand, rows of `size` elements along the inner axis; what lies outside is
 * 0. Work-items go along the axis whose elements are neighbours in memory. */
static const char copy[] =
    "#define COPY(s, x, o, first, rows, most, row_stride, k_stride) \\\n"
    "    if (k_stride == 1) for (fx_int e = FX_ITEM; e < rows * BK; e += TX * TY) { \\\n"
    "        const fx_int k = e % BK, r = e / BK; \\\n"
    "        s[k * rows + r] = first + r < most && k < left ? \\\n"
    "            LOAD(x, o + (first + r) * row_stride + at + k) : (SUM)0; \\\n"
    "    } else for (fx_int e = FX_ITEM; e < rows * BK; e += TX * TY) { \\\n"
    "        const fx_int r = e % rows, k = e / rows; \\\n"
    "        s[k * rows + r] = first + r < most && k < left ? \\\n"
    "            LOAD(x, o + (first + r) * row_stride + (at + k) * k_stride) : (SUM)0; \\\n"
    "    }\n";

static const char head[] =
    "    FX_LOCAL(SUM, as, BK * BM);\n"
    "    FX_LOCAL(SUM, bs, BK * BN);\n"
    "    SUM sum[MT * NT][RN][RM];\n"
    "    const fx_int tm = FX_ITEM % TX, tn = FX_ITEM / TX;\n"
    "    const fx_int m0 = FX_GROUP_X % TILES_M * BM, z = FX_GROUP_X / TILES_M / TILES_N;\n"
    "    const fx_int n0 = FX_GROUP_X / TILES_M % TILES_N * BN;\n";

static const char product_text[] =
    "    for (fx_int t = 0; t < MT * NT; t++)\n"
    "        EACH for (fx_int y = 0; y < RN; y++)\n"
    "            EACH for (fx_int x = 0; x < RM; x++) sum[t][y][x] = 0;\n"
    "    for (fx_int at = 0; at < INNER; at += BK) {\n"
    "        const fx_int left = INNER - at;\n"
    "        COPY(as, a, oa, m0, BM, ROWS, A_ROW, A_INNER)\n"
    "        COPY(bs, b, ob, n0, BN, COLUMNS, B_COLUMN, B_INNER)\n"
    "        FX_BARRIER;\n"
    "        for (fx_int t = 0; t < MT * NT; t++) {\n"
    "            const fx_int m = t / NT * TX * RM + tm, n = t % NT * TY * RN + tn;\n"
    "            if (m0 + m >= ROWS || n0 + n >= COLUMNS) continue;\n"
    "            SUM r[RN][RM];\n"
    "            FX_UNROLL for (fx_int y = 0; y < RN; y++)\n"
    "                FX_UNROLL for (fx_int x = 0; x < RM; x++) r[y][x] = sum[t][y][x];\n"
    "            for (fx_int k = 0; k < BK; k++)\n"
    "                FX_UNROLL for (fx_int y = 0; y < RN; y++)\n"
    "                    FX_UNROLL for (fx_int x = 0; x < RM; x++)\n"
    "                        r[y][x] = MAD(as[k * BM + m + x * TX], bs[k * BN + n + y * TY],\n"
    "                            r[y][x]);\n"
    "            FX_UNROLL for (fx_int y = 0; y < RN; y++)\n"
    "                FX_UNROLL for (fx_int x = 0; x < RM; x++) sum[t][y][x] = r[y][x];\n"
    "        }\n"
    "        FX_BARRIER;\n"
    "    }\n"
    "    for (fx_int t = 0; t < MT * NT; t++)\n"
    "        EACH for (fx_int y = 0; y < RN; y++)\n"
    "            EACH for (fx_int x = 0; x < RM; x++) {\n"
    "                const fx_int m = m0 + t / NT * TX * RM + tm + x * TX;\n"
    "                const fx_int n = n0 + t % NT * TY * RN + tn + y * TY;\n"
    "                if (m >= ROWS || n >= COLUMNS) continue;\n";

/* Other kernels of the same text have their own. */
static const char no_names[] =
    "#undef TX\n#undef TY\n#undef RM\n#undef RN\n#undef MT\n#undef NT\n#undef BK\n#undef BM\n"
    "#undef BN\n#undef EACH\n#undef SUM\n#undef LOAD\n#undef MAD\n#undef COPY\n#undef ROWS\n"
    "#undef COLUMNS\n#undef INNER\n#undef A_ROW\n#undef A_INNER\n#undef B_INNER\n"
    "#undef B_COLUMN\n#undef TILES_M\n#undef TILES_N\n";

/* From the sum to what is stored: registers r0 the product, then operands, then instructions. */
static void say_result(fxi_gpu_builder *b, const product *p)
{
    const fx_step *s = p->step;
    const fxi_gpu_type *type = p->type;
    const bool narrow = type->math && type->size == 2;
    fxi_gpu_say(b, "const %s r0 = %s%s%s(sum[t][y][x]);\n", type->value, narrow ? "fx_round_" : "(",
                narrow ? type->name : type->value, narrow ? "" : ")");
    for (int i = 0; i < p->operands; i++)
        fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(x%d, o%d + m * P(%d) + n * P(%d));\n",
                    type->value, 1 + i, type->name, 1 + i, p->pattern[2 + i], OPERANDS + 2 * i,
                    OPERANDS + 2 * i + 1);
    for (int k = 0; k < s->ninstr; k++)
        fxi_gpu_say_instr(b, &s->program[k], 1 + p->operands + k);
    fxi_gpu_say(b, "FX_STORE_%s(c, (z * COLUMNS + n) * ROWS + m, r%d);\n            }\n",
                type->name, s->ninstr ? p->operands + s->ninstr : 0);
}

static void say_kernel(fxi_gpu_builder *b, const product *p)
{
    fxi_gpu_begin_groups(b, is_wide(p->step), p->tile.tx * p->tile.ty);
    fxi_gpu_kernel(b, "fx_matmul", 3 + p->operands,
                   first_of_batch(p) + fxi_gpu_walk_params(&p->batch));
    say_constants(b, p);
    fxi_gpu_say_text(b, names);
    fxi_gpu_say_text(b, copy);
    fxi_gpu_say_text(b, head);
    fxi_gpu_walk_say(b, &p->batch, first_of_batch(p), "z", "o", NULL);
    fxi_gpu_say(b, "const fx_int oa = o%d, ob = o%d;\n", p->pattern[0], p->pattern[1]);
    fxi_gpu_say_text(b, product_text);
    say_result(b, p);
    fxi_gpu_say_text(b, no_names);
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */

static void add_launch(fxi_gpu_builder *b, const product *p)
{
    const fx_step *s = p->step;
    fxi_gpu_call *c = fxi_gpu_add(b);
    const int64_t params[OPERANDS] = {p->m,  p->n,  p->k,       p->am,     p->ak,
                                      p->bk, p->bn, p->tiles_m, p->tiles_n};
    for (int k = 0; k < OPERANDS; k++)
        fxi_gpu_param(c, k, params[k]);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, FXI_GPU_OUT, 0);
    for (int i = 0; i < p->operands; i++) {
        fxi_gpu_buffer(c, 3 + i, FXI_GPU_IN, 2 + i);
        fxi_gpu_param(c, OPERANDS + 2 * i, s->in[2 + i].stride[0]);
        fxi_gpu_param(c, OPERANDS + 2 * i + 1, s->in[2 + i].stride[1]);
    }
    fxi_gpu_walk_fill(&p->batch, c, first_of_batch(p));
    c->groups[0] = (uint32_t)(p->tiles_m * p->tiles_n * p->batches);
}

void fxi_gpu_matmul(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    if (s->out.dtype == FX_DTYPE_BOOL) {
        fxi_gpu_fail(b, FX_STATUS_DTYPE, "matmul has no meaning for Bool");
        return;
    }
    if (fx_tensor_length(&s->out) == 0)
        return;
    product p = product_of(s);
    choose_tile(&p, b->limits);
    say_kernel(b, &p);
    add_launch(b, &p);
}
