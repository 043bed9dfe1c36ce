/* cpu_attention.c: dot-product attention of Float32 and its gradients, without arrays of scores
 * (fx_attention_step in <cflux/backend.h> has the formulas).
 *
 * As in FlashAttention (Dao et al., 2022), scores exist only for a panel: as many lanes as the
 * matrix product's register tile has rows, by at most ROWS rows, which stay in the first-level
 * cache. The lanes are queries and the rows are keys; for the gradients of k and v the lanes are
 * keys and the rows are queries. So one part computes all rows of a lane's sum, and no two parts
 * add to one element. A panel is computed in three stages, all with vectors along the lanes:
 *   1. scores, and for a gradient the products of v and gy: the register tile reads the lanes'
 *      operand packed, and the columns of the rows' operand in their own memory;
 *   2. exponentials (cpu_isa_attention.h);
 *   3. sums over the rows, added to the lanes' results: the register tile reads the panel itself as
 *      its packed left matrix, and the terms as panels that serve all lanes of a group.
 * A part computes groups of PANELS panels. With a causal mask it skips the rows that the mask hides
 * from a whole panel: about half of the arithmetic. Sizes alone decide the order of all sums.
 *
 * A step with all three gradients has five products, where the two separate steps, one for q and
 * one for k and v, have seven. Its rows, which are queries, have results too: each panel adds to
 * them the products of its lanes' keys and gradients. All groups of a head add to the same rows, so
 * a part computes whole heads.
 */
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include <math.h>
#include <string.h>

enum {
    ROWS = 256,  /* 16 KiB of scores with AVX2 */
    PANELS = 16, /* panels of a group, which share the packed terms */
    Q = 0,
    K,
    V,
    GY,
    LSE,
    DELTA
};

/* The products and sums of each kind of step. There are one or two pairs of operands: the product
 * of the first pair is a panel of scores, that of the second a panel of gradients of α. Then there
 * are up to two sums over rows, each of the rows of operand `term` times a panel: the first
 * (`weight` 0) or the second (1). */
typedef struct recipe {
    int pairs, sums;
    uint8_t lanes[2], rows[2], term[2], weight[2];
    bool lanes_are_keys, rows_have_results;
} recipe;
static const recipe recipes[] = {
    [FX_ATTENTION_FORWARD] = {1, 1, {Q}, {K}, {V}, {0}, false, false},
    [FX_ATTENTION_LOGSUMEXP] = {1, 0, {Q}, {K}, {0}, {0}, false, false},
    [FX_ATTENTION_GRADIENT_QUERY] = {2, 1, {Q, GY}, {K, V}, {K}, {1}, false, false},
    [FX_ATTENTION_GRADIENT_KEY_VALUE] = {2, 2, {K, V}, {Q, GY}, {Q, GY}, {1, 0}, true, false},
    [FX_ATTENTION_GRADIENTS] = {2, 2, {K, V}, {Q, GY}, {Q, GY}, {1, 0}, true, true},
};

typedef struct job {
    const fx_step *step;
    const fx_attention_step *a;
    const recipe *recipe;
    const fxi_simd *simd;
    const float *const *in;
    float *out, *more;   /* the second output, or NULL: logarithms, or the gradient of q */
    int64_t lanes, rows; /* queries and keys, or keys and queries */
    int64_t width;       /* lanes of a panel */
    int64_t groups;      /* of one head */
    int64_t units, parts;
} job;

/* A thread's memory, and the head of one observation that it computes. */
typedef struct work {
    const job *j;
    int64_t head, observation;
    float *packed[2];             /* the lanes' operands of all panels of a group */
    float *lane_terms, *row_sums; /* if the rows have results; see add_row_sums */
    float *term[2], *result[2];
    float *scores, *products; /* a panel */
    float *most, *sum, *factor;
    float *log_sums, *delta; /* of the lanes */
} work;

/* ---- operands -------------------------------------------------------------------------------- */

/* Features of a head of operand k. */
static int64_t features_of(const job *j, int k)
{
    return k == Q || k == K ? j->a->features : j->a->value_features;
}

/* Vector i of operand k. */
static const float *vector_at(const work *w, int k, int64_t i)
{
    const fx_tensor *t = &w->j->step->in[k];
    return w->j->in[k] + w->head * features_of(w->j, k) + i * t->stride[1] +
           w->observation * t->stride[2];
}

/* The number of query i in lse or delta: heads × queries × batch. */
static int64_t query_at(const work *w, int64_t i)
{
    return w->head + w->j->a->heads * (i + w->j->a->queries * w->observation);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static float *take(char *memory, size_t *used, int64_t n)
{
    const size_t at = *used;
    *used += (size_t)fxi_cpu_round_up(n * (int64_t)sizeof(float), 64);
    return memory ? (float *)(void *)(memory + at) : NULL;
}

/* Divides the memory, or only returns its size if it is NULL. Sizes of the step alone decide this
 * size, so a repeated step gets a cached block (memory.c). */
static size_t divide(work *w, const job *j, char *memory)
{
    const int64_t lanes = PANELS * j->width, unit = j->simd->gemm->unit;
    size_t used = 0;
    w->j = j;
    for (int k = 0; k < j->recipe->pairs; k++)
        w->packed[k] = take(memory, &used, lanes * features_of(j, j->recipe->lanes[k]));
    for (int k = 0; k < j->recipe->sums; k++) {
        const int64_t n = fxi_cpu_round_up(features_of(j, j->recipe->term[k]), unit);
        w->term[k] = take(memory, &used, ROWS * n);
        w->result[k] = take(memory, &used, lanes * n);
    }
    if (j->recipe->rows_have_results) {
        const int64_t n = fxi_cpu_round_up(j->a->features, j->width);
        w->lane_terms = take(memory, &used, lanes * n);
        w->row_sums = take(memory, &used, ROWS * n);
    }
    w->scores = take(memory, &used, ROWS * j->width);
    w->products = take(memory, &used, ROWS * j->width);
    w->most = take(memory, &used, lanes);
    w->sum = take(memory, &used, lanes);
    w->factor = take(memory, &used, j->width);
    w->log_sums = take(memory, &used, lanes);
    w->delta = take(memory, &used, lanes);
    return used;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Runs the register tile over t->n columns: first its whole width, then the columns that are left.
 * b: elements of B between two columns. */
static void run_tiles(const job *j, fxi_gemm_tiles *t, int64_t b)
{
    const fxi_gemm_core *core = j->simd->gemm;
    const int64_t n = t->n, whole = n / core->nr * core->nr;
    /* Lanes that do not exist are computed too, so all panels use the same tile. */
    t->m = j->width;
    t->acs = t->ccs = j->width;
    t->n = whole;
    t->bnext = core->nr * b;
    if (whole > 0)
        core->tile[core->nr / core->unit - 1][2](t);
    if (whole == n)
        return;
    t->n = n - whole;
    t->b = (const float *)t->b + whole * b;
    t->c = (float *)t->c + whole * j->width;
    core->tile[fxi_cpu_divide_up(t->n, core->unit) - 1][2](t);
}

/* panel[r][lane] = Σ lanes[f][lane]·rows[f][r] over the features, for n rows from `from` on. */
static void multiply(const work *w, int pair, int64_t panel, int64_t from, int64_t n, float *to)
{
    const job *j = w->j;
    const int k = j->recipe->rows[pair];
    const int64_t features = features_of(j, k), stride = j->step->in[k].stride[1];
    fxi_gemm_tiles t = {.k = features,
                        .a = w->packed[pair] + panel * j->width * features,
                        .b = vector_at(w, k, from),
                        .c = to,
                        .n = n,
                        .brs = 1,
                        .bcs = stride,
                        .columns = true};
    run_tiles(j, &t, stride);
}

/* Packs n terms of sum k from row `from` on, in panels as wide as the register tile. Vectors whose
 * distance is a power of two share a cache set, so all panels of a few rows are packed first. */
static void pack_terms(const work *w, int k, int64_t from, int64_t n)
{
    enum { FEW = 8 };
    const fxi_gemm_core *core = w->j->simd->gemm;
    const int term = w->j->recipe->term[k];
    const int64_t features = features_of(w->j, term);
    for (int64_t r = 0; r < n; r += FEW)
        for (int64_t f = 0; f < features; f += core->nr) {
            const int64_t count = fxi_cpu_min(core->nr, features - f),
                          width = fxi_cpu_round_up(count, core->unit);
            core->pack((int)width, vector_at(w, term, from + r) + f, 1,
                       w->j->step->in[term].stride[1], (int)count, fxi_cpu_min(FEW, n - r), false,
                       w->term[k] + f * n + r * width);
        }
}

/* result[f][lane] += Σ panel[r][lane]·term[r][f] over rows lo … hi−1 of the `n` packed ones. The
 * panels of terms have two widths, so their rows begin at different offsets. */
static void add_terms(const work *w, int k, int64_t panel, int64_t lo, int64_t hi, int64_t n)
{
    const job *j = w->j;
    const fxi_gemm_core *core = j->simd->gemm;
    const int64_t features = features_of(j, j->recipe->term[k]);
    const int64_t whole = features / core->nr * core->nr;
    for (int64_t f = 0; f < features; f = f < whole ? whole : features) {
        const int64_t columns = f < whole ? whole : features - whole;
        const int64_t width = f < whole ? core->nr : fxi_cpu_round_up(columns, core->unit);
        fxi_gemm_tiles t = {.k = hi - lo,
                            .a = j->recipe->weight[k] ? w->products : w->scores,
                            .b = w->term[k] + f * n + lo * width,
                            .c = w->result[k] + (panel * features + f) * j->width,
                            .n = columns,
                            .brs = width,
                            .accumulate = true};
        run_tiles(j, &t, n);
    }
}

/* Packs the keys of a group as terms of the rows' results: width features of all lanes, then the
 * next features. */
static void pack_lane_terms(const work *w, int64_t lane, int64_t lanes)
{
    const job *j = w->j;
    const int64_t width = j->width;
    for (int64_t f = 0; f < j->a->features; f += width)
        j->simd->gemm->pack((int)width, vector_at(w, K, lane) + f, 1, j->step->in[K].stride[1],
                            (int)fxi_cpu_min(width, j->a->features - f), lanes, false,
                            w->lane_terms + f * PANELS * width);
}

/* row_sums[r][f] += Σ panel[r][lane]·k[f][lane] over the panel's lanes, of which `lanes` exist, for
 * rows lo … hi−1 of the block. row_sums has width features of all rows, then the next features. */
static void add_row_sums(const work *w, int64_t panel, int64_t lanes, int64_t lo, int64_t hi)
{
    const job *j = w->j;
    const int64_t width = j->width;
    for (int64_t f = 0; f < j->a->features; f += width) {
        fxi_gemm_tiles t = {.k = fxi_cpu_min(width, lanes),
                            .a = w->lane_terms + (f * PANELS + panel * width) * width,
                            .b = w->products,
                            .c = w->row_sums + f * ROWS + lo * width,
                            .n = hi - lo,
                            .brs = 1,
                            .bcs = width,
                            .columns = true,
                            .accumulate = true};
        run_tiles(j, &t, width);
    }
}

/* Writes the scaled sums of n rows from `from` on to the gradient of q, or adds them. */
static void write_row_sums(const work *w, int64_t from, int64_t n, bool add)
{
    const job *j = w->j;
    const int64_t width = j->width, features = j->a->features;
    const float scale = (float)j->a->scale;
    for (int64_t r = 0; r < n; r++) {
        float *to = j->more + features * query_at(w, from + r);
        for (int64_t f = 0; f < features; f += width) {
            const float *sums = w->row_sums + f * ROWS + r * width;
            const int64_t count = fxi_cpu_min(width, features - f);
            for (int64_t i = 0; i < count; i++)
                to[f + i] = (add ? to[f + i] : 0) + scale * sums[i];
        }
    }
}

/* ---- a panel --------------------------------------------------------------------------------- */

/* Sets the scores of keys that come after the query to −∞. Only rows near the diagonal have such
 * scores. first: the panel's first lane; from: the first of its n rows. */
static void mask(const work *w, int64_t first, int64_t from, int64_t n)
{
    const int64_t width = w->j->width, diagonal = first - from;
    const bool keys = w->j->recipe->lanes_are_keys;
    const int64_t begin = keys ? 0 : fxi_cpu_max(0, diagonal + 1),
                  end = keys ? fxi_cpu_min(n, diagonal + width) : n;
    for (int64_t r = begin; r < end; r++)
        for (int64_t l = 0; l < width; l++)
            if (keys ? l > r - diagonal : l < r - diagonal)
                w->scores[r * width + l] = -INFINITY;
}

/* Multiplies n numbers of each lane by the lane's factor. */
static void scale_lanes(float *x, int64_t n, int64_t width, const float *factors)
{
    enum {
        LANES = 8
    }; /* divides width; the compiler vectorises an inner loop of constant length */
    for (int64_t l = 0; l < width; l += LANES) {
        float factor[LANES];
        memcpy(factor, factors + l, sizeof factor);
        for (int64_t i = 0; i < n; i++)
            for (int k = 0; k < LANES; k++)
                x[i * width + l + k] *= factor[k];
    }
}

/* Turns the scores of a panel into exponentials. In a forward step, a larger maximum also scales
 * the results so far. In a gradient, the exponentials are α, and the panel of gradients of α
 * becomes that of the gradients of the scores. */
static void weigh(const work *w, int64_t panel, int64_t from, int64_t n)
{
    const job *j = w->j;
    const bool keys = j->recipe->lanes_are_keys;
    const int64_t lane = panel * j->width;
    const fxi_attention_panel p = {
        .s = w->scores,
        .d = w->products,
        .rows = n,
        .most = w->most + lane,
        .sum = w->sum + lane,
        .factor = w->factor,
        .stride = keys ? j->a->heads : 0,
        .log_sums = keys ? j->in[LSE] + query_at(w, from) : w->log_sums + lane,
        .delta = keys ? j->in[DELTA] + query_at(w, from) : w->delta + lane};
    if (j->recipe->pairs > 1) {
        j->simd->attention->gradient(&p);
        return;
    }
    const int64_t features = j->recipe->sums * j->a->value_features;
    j->simd->attention->softmax(&p);
    if (from > 0 && features > 0)
        scale_lanes(w->result[0] + lane * features, features, j->width, w->factor);
}

/* One panel for rows from … to−1, whose terms are packed. lane: the first of the group's lanes. */
static void run_panel(const work *w, int64_t lane, int64_t lanes, int64_t panel, int64_t from,
                      int64_t to)
{
    const job *j = w->j;
    const int64_t first = lane + panel * j->width, end = first + j->width;
    const bool keys = j->recipe->lanes_are_keys, causal = j->a->causal;
    const int64_t lo = causal && keys ? fxi_cpu_max(from, first) : from,
                  hi = causal && !keys ? fxi_cpu_min(to, end) : to, n = hi - lo;
    if (n <= 0)
        return;
    multiply(w, 0, panel, lo, n, w->scores);
    if (j->recipe->pairs > 1)
        multiply(w, 1, panel, lo, n, w->products);
    if (causal && (keys ? lo < end : hi > first))
        mask(w, first, lo, n);
    weigh(w, panel, lo, n);
    for (int k = 0; k < j->recipe->sums; k++)
        add_terms(w, k, panel, lo - from, hi - from, to - from);
    if (j->recipe->rows_have_results)
        add_row_sums(w, panel, lanes - panel * j->width, lo - from, hi - from);
}

/* ---- a group --------------------------------------------------------------------------------- */

/* Packs the lanes' operands, multiplies the first by the scale of the scores, and clears the
 * results. */
static void begin_group(const work *w, int64_t lane, int64_t lanes)
{
    const job *j = w->j;
    const int64_t width = j->width;
    for (int k = 0; k < j->recipe->pairs; k++) {
        const int operand = j->recipe->lanes[k];
        const int64_t n = features_of(j, operand);
        for (int64_t l = 0; l < lanes; l += width)
            j->simd->gemm->pack((int)width, vector_at(w, operand, lane + l),
                                j->step->in[operand].stride[1], 1,
                                (int)fxi_cpu_min(width, lanes - l), n, false, w->packed[k] + l * n);
    }
    for (int64_t l = 0; l < width; l++)
        w->factor[l] = (float)j->a->scale;
    scale_lanes(w->packed[0], fxi_cpu_divide_up(lanes, width) * j->a->features, width, w->factor);
    if (j->recipe->rows_have_results)
        pack_lane_terms(w, lane, lanes);
    for (int k = 0; k < j->recipe->sums; k++)
        memset(w->result[k], 0,
               (size_t)(PANELS * width * features_of(j, j->recipe->term[k])) * sizeof(float));
    memset(w->sum, 0, (size_t)(PANELS * width) * sizeof(float));
    /* Lanes that do not exist are computed too. For them, nothing is read: it would be beyond the
     * arrays. */
    for (int64_t l = 0; l < PANELS * width; l++) {
        const bool reads = j->recipe->pairs > 1 && !j->recipe->lanes_are_keys && l < lanes;
        w->most[l] = -INFINITY;
        w->log_sums[l] = reads ? j->in[LSE][query_at(w, lane + l)] : 0;
        w->delta[l] = reads ? j->in[DELTA][query_at(w, lane + l)] : 0;
    }
}

/* Writes the results of sum k. A result of lanes is transposed: in the output, the features of one
 * lane are neighbours. `first` is the output's first feature of this head. */
static void write_result(const work *w, int k, int64_t first, int64_t lane, int64_t lanes)
{
    const job *j = w->j;
    const int64_t width = j->width, features = features_of(j, j->recipe->term[k]);
    const int64_t *stride = j->step->out.stride;
    for (int64_t l = 0; l < lanes; l += width) {
        float *result = w->result[k] + l * features;
        for (int64_t i = 0; i < width; i++)
            /* A forward result is divided by the sum of the exponentials. Gradients through the
             * scores get the scale. The gradient of v does not: it is a sum of gy times α. */
            w->factor[i] = j->recipe->pairs == 1  ? 1 / w->sum[l + i]
                           : j->recipe->weight[k] ? (float)j->a->scale
                                                  : 1;
        scale_lanes(result, features, width, w->factor);
        fxi_transpose(j->out + first + (lane + l) * stride[1] + w->observation * stride[2], result,
                      features, fxi_cpu_min(width, lanes - l), width, stride[1], sizeof(float));
    }
}

/* The logarithms of the sums of exponentials are the output of LOGSUMEXP, and a second output of a
 * forward step whose gradient is in the same plan. */
static void end_group(const work *w, int64_t lane, int64_t lanes)
{
    const job *j = w->j;
    float *sums = j->recipe->sums ? j->more : j->out;
    for (int64_t l = 0; j->recipe->pairs == 1 && sums && l < lanes; l++)
        sums[query_at(w, lane + l)] = w->most[l] + logf(w->sum[l]);
    int64_t first = 0;
    for (int k = 0; k < j->recipe->sums; k++) {
        const int64_t features = features_of(j, j->recipe->term[k]);
        write_result(w, k, first + w->head * features, lane, lanes);
        first += j->a->heads * features;
    }
}

static void run_group(work *w, int64_t group)
{
    const job *j = w->j;
    const int64_t most = PANELS * j->width, lane = group * most,
                  lanes = fxi_cpu_min(most, j->lanes - lane);
    begin_group(w, lane, lanes);
    const bool keys = j->recipe->lanes_are_keys, causal = j->a->causal;
    /* No lane of the group sees the rows that are left out. */
    const int64_t end = causal && !keys ? fxi_cpu_min(j->rows, lane + lanes) : j->rows;
    for (int64_t from = causal && keys ? lane : 0; from < end; from += ROWS) {
        const int64_t to = fxi_cpu_min(end, from + ROWS), n = to - from;
        for (int k = 0; k < j->recipe->sums; k++)
            pack_terms(w, k, from, n);
        if (j->recipe->rows_have_results)
            memset(w->row_sums, 0,
                   (size_t)(ROWS * fxi_cpu_round_up(j->a->features, j->width)) * sizeof(float));
        for (int64_t l = 0; l < lanes; l += j->width)
            run_panel(w, lane, lanes, l / j->width, from, to);
        if (j->recipe->rows_have_results)
            write_row_sums(w, from, n, group > 0);
    }
    end_group(w, lane, lanes);
}

/* Units are ordered by observation and head, and by group if the groups are units. */
static void run_unit(work *w, int64_t unit)
{
    const job *j = w->j;
    const int64_t units = j->recipe->rows_have_results ? 1 : j->groups; /* of a head */
    w->head = unit / units % j->a->heads;
    w->observation = unit / units / j->a->heads;
    if (!j->recipe->rows_have_results)
        run_group(w, unit % units);
    for (int64_t group = 0; j->recipe->rows_have_results && group < j->groups; group++)
        run_group(w, group);
}

static void run_part(void *user, int64_t part, void *memory)
{
    const job *j = user;
    work w = {0};
    int64_t from, to;
    divide(&w, j, memory);
    fxi_cpu_range(j->units, j->parts, part, &from, &to);
    for (int64_t unit = from; unit < to; unit++)
        run_unit(&w, unit);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Should all gradients be one step? Its parts are whole heads, while two separate steps have groups
 * as parts. So one step needs enough heads for many threads, or short sequences, whose heads are
 * one group anyway. The number of threads must not decide, because the bits must not depend on it.
 */
static bool enough_heads(const fx_attention_step *a)
{
    enum { HEADS = 32, HEADS_OF_ONE_GROUP = 8, GROUP = 256 };
    const bool one_group = a->keys <= GROUP && a->queries <= GROUP;
    return a->heads * a->batch >= (one_group ? HEADS_OF_ONE_GROUP : HEADS);
}

/* Any sizes: with a single query, too, one step takes less time than several. */
bool fxi_cpu_has_attention(fx_device *device, const fx_step *step)
{
    const fx_attention_step *a = fx_step_attention(step);
    (void)device;
    return step->out.dtype == FX_DTYPE_F32 && a->mask == 0 &&
           (a->kind != FX_ATTENTION_GRADIENTS || enough_heads(a));
}

fx_status fxi_cpu_attention(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    const fx_attention_step *a = fx_step_attention(step);
    const recipe *how = &recipes[a->kind];
    /* fxi_cpu_has_attention accepts Float32 only, so the type of all operands is known. */
    const float *operands[DELTA + 1] = {0};
    job j = {.step = step,
             .a = a,
             .recipe = how,
             .simd = fxi_cpu_simd(),
             .in = operands,
             .out = out,
             .more = a->more.n ? run->more[0] : NULL,
             .lanes = how->lanes_are_keys ? a->keys : a->queries,
             .rows = how->lanes_are_keys ? a->queries : a->keys};
    work w;
    for (int k = 0; k < step->nin; k++)
        operands[k] = in[k];
    j.width = 2 * j.simd->gemm->lanes;
    j.groups = fxi_cpu_divide_up(j.lanes, PANELS * j.width);
    j.units = (how->rows_have_results ? 1 : j.groups) * a->heads * a->batch;
    const double flops = 2.0 * (double)(a->queries * a->keys) * (double)(a->heads * a->batch) *
                         (double)(how->pairs + how->sums + how->rows_have_results) *
                         (double)a->features;
    j.parts = fxi_cpu_parts(j.units, fxi_cpu_cost(0, a->causal ? flops / 2 : flops));
    return fxi_cpu_parallel_scratch(j.parts, divide(&w, &j, NULL), run_part, &j)
               ? fxi_cpu_no_memory(step)
               : FX_OK;
}
