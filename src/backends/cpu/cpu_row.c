/* cpu_row.c: runs row steps: several passes over a row while it stays in the cache (softmax, norms,
 * cross-entropy, with their gradients). cpu_row_plan.c prepares them.
 *
 * A block of rows, with the values that are kept between passes, fits in the first-level cache if
 * rows are short, else in the second-level cache. While a later pass computes, it fetches the
 * next block, for which the first pass would wait.
 *
 * Instructions on values of rows (one number a row) are one call for a block. In a pass, every
 * instruction on elements is one call of a loop over a tile (cpu_isa_ops.h), as in the tile
 * interpreter, and a reduction adds the tile to the accumulators of its rows. The division into
 * blocks depends on shapes only and rows are independent, and sums across rows are joined in the
 * order of parts that also depend on shapes only. So any number of threads gives the same bits.
 */
#include "cpu_masked_sum.h"
#include "cpu_parallel.h"
#include "cpu_program.h"
#include "cpu_row.h"
#include <string.h>

/* Lists on the stack. The planner makes row steps of at most 24 inputs, 16 outputs and 72
 * instructions (row.h). */
enum { SHORT_ROW = 16, MAX_LOADS = 32, MAX_MOVERS = 128 };

/* The state of one thread for the rows of one part. */
typedef struct runner {
    const fxi_row_plan *p;
    const void *const *in;
    void *const *out;
    char *scratch;
    char *sums;    /* accumulators of the part's sums across rows */
    int64_t first; /* row of the block */
    char *at[FXI_ROW_LOCATIONS];
    char *start[MAX_MOVERS]; /* addresses of the movers at the start of the block */
    fxi_walk walks[MAX_LOADS];
} runner;

/* ---- values of rows at their elements -------------------------------------------------------- */

/* Repeats the value of each row over its elements. Rows are filled to whole vectors: the excess is
 * overwritten by the next row, and the scratch is longer than the last row. Very short rows use a
 * shorter vector, because they would write the same memory many times. */
enum { SHORTEST_ROW = 4 };
#define SPREAD(BITS, LANES)                                                                        \
    typedef uint##BITS##_t __attribute__((may_alias)) word##BITS;                                  \
    static inline void fill##BITS(word##BITS *d, const word##BITS *s, int rows, int64_t n,         \
                                  int lanes)                                                       \
    {                                                                                              \
        for (int r = 0; r < rows; r++, d += n) {                                                   \
            const word##BITS value = s[r];                                                         \
            for (int64_t i = 0; i < n; i += lanes)                                                 \
                for (int j = 0; j < lanes; j++)                                                    \
                    d[i + j] = value;                                                              \
        }                                                                                          \
    }                                                                                              \
    /* Rows of two elements, such as the scores of two classes, are pairs of equal numbers. */     \
    static inline void pairs##BITS(word##BITS *restrict d, const word##BITS *restrict s, int rows) \
    {                                                                                              \
        for (int r = 0; r < rows; r++)                                                             \
            d[2 * r] = d[2 * r + 1] = s[r];                                                        \
    }                                                                                              \
    static void spread##BITS(void *d, const void *s, int rows, int64_t n)                          \
    {                                                                                              \
        if (n == 2)                                                                                \
            pairs##BITS(d, s, rows);                                                               \
        else if (n <= SHORTEST_ROW)                                                                \
            fill##BITS(d, s, rows, n, SHORTEST_ROW);                                               \
        else                                                                                       \
            fill##BITS(d, s, rows, n, LANES);                                                      \
    }
SPREAD(8, 16)
SPREAD(32, 16)
SPREAD(64, 8)

/* d[i + r·n] = s[r], i < n, r < rows */
static void spread(const runner *r, const fxi_row_link *l, int64_t first, int rows, int64_t n)
{
    const char *from = r->at[l->from] + first * l->size;
    char *to = r->at[l->to];
    if (l->size == 4)
        spread32(to, from, rows, n);
    else if (l->size == 8)
        spread64(to, from, rows, n);
    else
        spread8(to, from, rows, n);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Gathers the next `left` elements of load k to `to`. 16-bit elements become Float32. */
static void gather(runner *r, int k, char *to, int64_t left)
{
    const fxi_row_load *l = &r->p->loads[k];
    const size_t size = fxi_cpu_size(l->dtype);
    if (!fxi_cpu_is_half(l->dtype)) {
        fxi_walk_read(&r->walks[k], r->in[l->in], size, to, left);
        return;
    }
    const fxi_tile_fn widen = fxi_cpu_simd()->load[l->dtype == FX_DTYPE_BF16];
    for (int64_t n; left > 0; left -= n, to += (size_t)n * sizeof(float)) {
        /* A tile at a time, because the conversion works on dense vectors. */
        uint16_t halves[FXI_TILE];
        const void *const from[] = {halves};
        n = left < FXI_TILE ? left : FXI_TILE;
        fxi_walk_read(&r->walks[k], r->in[l->in], size, halves, n);
        widen(to, from, (int)n, 0);
    }
}

/* How many values of a gathered operand a row has. */
static int64_t values_of_row(const fxi_row_plan *p, uint8_t extent)
{
    return extent == FXI_ROW_VALUES      ? 1
           : extent == FXI_ROW_STRETCHES ? p->inner / p->stretch
                                         : p->inner;
}

/* For one block, gathers an operand that cannot be read directly: `rows` rows from row `first` on.
 * Its walk continues where the previous block ended. The elements of columns are gathered in the
 * order of memory: for each term those of the block's columns. */
static void load(runner *r, int k, int64_t first, int64_t rows)
{
    const fxi_row_plan *p = r->p;
    const fxi_row_load *l = &p->loads[k];
    char *to = r->at[l->to];
    if (l->extent != FXI_ROW_ELEMENTS || !p->columns) {
        gather(r, k, to, l->extent == FXI_ROW_ONE ? 1 : rows * values_of_row(p, l->extent));
        return;
    }
    /* In the order of memory, the walk has `inner` rows of p->columns neighbours, then those of the
     * next columns. A block of all neighbours is contiguous there, and is one run. */
    const size_t size = fxi_cpu_is_half(l->dtype) ? sizeof(float) : fxi_cpu_size(l->dtype);
    const int64_t at = first + first / p->columns * (p->inner - 1) * p->columns,
                  terms = rows == p->columns ? p->inner : 1;
    for (int64_t i = 0; i < p->inner; i += terms, to += (size_t)(terms * rows) * size) {
        fxi_walk_seek(&r->walks[k], at + i * p->columns);
        gather(r, k, to, terms * rows);
    }
}

/* ---- a tile ---------------------------------------------------------------------------------- */

/* A tile: elements of `rows` rows from row `first` of the block on, n elements in all. */
typedef struct tile {
    int64_t first;
    int64_t from; /* its first element in its row */
    int rows, n;
    bool begins, ends; /* a row */
} tile;

/* Adds n elements of a row, from element `from` on, to the row's accumulators of a sum across rows.
 */
static void add_across(const fxi_row_plan *p, const fxi_row_call *c, const char *x, int64_t from,
                       int64_t n, char *acc)
{
    const fxi_reducer *op = c->reducer;
    if (p->run == 1) {
        op->col(x, n, 1, 1, n, acc + from * (int64_t)op->size);
        return;
    }
    for (int64_t end = from + n, m; from < end; from += m, x += m * c->in_size) {
        const int64_t left = p->run - from % p->run;
        m = left < end - from ? left : end - from;
        op->row(x, m, 1, acc + from / p->run * (int64_t)op->size);
    }
}

/* Adds a tile to the accumulators of a sum across rows. */
static void sum_across(const runner *r, const fxi_row_call *c, const tile *t)
{
    const fxi_row_plan *p = r->p;
    const fxi_row_sum *sum = &p->sums[c->across - 1];
    const char *x = r->at[c->src[0]];
    const int64_t n = t->n / t->rows;
    char *acc = r->sums + sum->at;
    /* The terms of whole rows follow each other. */
    if (p->run == 1 && p->groups == 1 && t->rows > 1) {
        c->reducer->col(x, n, 1, t->rows, n, acc);
        return;
    }
    for (int k = 0; k < t->rows; k++, x += n * c->in_size) {
        const int64_t group = (r->first + t->first + k) % p->groups;
        add_across(p, c, x, t->from, n, acc + group * p->width * (int64_t)c->reducer->size);
    }
}

static void compute_terms(const runner *r, const fxi_row_call *c, const tile *t)
{
    const void *const src[] = {r->at[c->operands[0]], r->at[c->operands[1]], r->at[c->operands[2]]};
    c->terms(r->at[c->src[0]], src, t->n, 0);
}

/* Adds row k of a tile, n elements, to the row's accumulators. Usually few elements of a mask are
 * true, and then fxi_cpu_sparse_sum is faster than computing all terms. */
static void reduce_row(const runner *r, const fxi_row_call *c, const tile *t, int k, int64_t n,
                       void *acc)
{
    const char *x = r->at[c->src[0]] + k * n * c->in_size;
    if (c->counts) {
        const uint8_t *mask = (const uint8_t *)r->at[c->operands[0]] + k * n;
        *(double *)acc += (double)fxi_cpu_simd()->mask_count(mask, n);
        return;
    }
    if (c->terms && t->rows == 1) {
        const void *elements = r->at[c->operands[1]], *other = r->at[c->operands[2]];
        if (c->picks && n >= FXI_MASKED_LEAST && *(const float *)other == 0 &&
            fxi_cpu_sparse_sum((const uint8_t *)r->at[c->operands[0]], elements, n, acc))
            return;
        compute_terms(r, c, t);
    }
    if (c->fused) {
        const fxi_row_fused *f = &r->p->fused[c->fused - 1];
        const float *next = (const float *)r->at[f->at[2]] + f->ahead;
        fxi_cpu_simd()->fused->deviations((const float *)x, n, next, acc);
        return;
    }
    c->reducer->row(x, n, 1, acc);
}

/* Adds a tile to the accumulators of its rows, and stores the result at the end of a row. Short
 * rows are reduced together as columns: a call for each row would cost more than its elements. */
static void reduce(const runner *r, const fxi_row_call *c, const tile *t)
{
    const fxi_reducer *op = c->reducer;
    const char *x = r->at[c->src[0]];
    char *acc = r->at[c->to], *to = r->at[c->src[1]] + t->first * c->size;
    char *also = c->also ? r->at[c->src[2]] + t->first * c->also_size : NULL;
    const int64_t n = t->n / t->rows;
    const bool together = r->p->columns || (t->rows > 1 && n < SHORT_ROW);
    if (c->terms && (together || (t->rows > 1 && !c->counts)))
        compute_terms(r, c, t);
    if (r->p->columns) {
        if (t->begins)
            op->init(acc, t->rows);
        op->col(x, t->rows, 1, n, t->rows, acc);
        if (t->ends)
            op->done(acc, t->rows, to);
        if (t->ends && also)
            c->also->done(acc, t->rows, also);
        return;
    }
    if (together) {
        /* The reducer is told that the rows are columns: results are n elements apart, and the
         * terms of one are neighbours. */
        op->init(acc, t->rows);
        op->col(x, t->rows, n, n, 1, acc);
        op->done(acc, t->rows, to);
        if (also)
            c->also->done(acc, t->rows, also);
        return;
    }
    /* Longer rows are reduced one after the other, with the same accumulators. */
    for (int k = 0; k < t->rows; k++, to += c->size) {
        if (t->begins)
            op->init(acc, 1);
        reduce_row(r, c, t, k, n, acc);
        if (t->ends)
            op->done(acc, 1, to);
        if (t->ends && also)
            c->also->done(acc, 1, also + k * c->also_size);
    }
}

/* A loop one of whose operands is a choice of two numbers (fxi_row_call.sparse). In a one-hot mask
 * nearly all elements are false, and then the number for these is read instead of a tile. */
static void choose(const runner *r, const fxi_row_call *c, const tile *t)
{
    const char *mask = r->at[c->operands[0]];
    for (int64_t from = 0, n; from < t->n; from += n) {
        bool some;
        n = fxi_cpu_simd()->mask_run((const uint8_t *)mask + from, t->n - from, &some);
        const int64_t at = from * (int64_t)sizeof(float);
        char *chosen = r->at[c->src[c->choice]] + at;
        const void *src[3];
        for (int k = 0; k < 3; k++)
            src[k] = r->at[c->src[k]] + (c->ones >> k & 1 ? 0 : at);
        if (some)
            c->terms(chosen,
                     (const void *[]){mask + from, r->at[c->operands[1]], r->at[c->operands[2]]},
                     (int)n, 0);
        else
            src[c->choice] = r->at[c->operands[2]];
        (some ? c->loop : c->sparse)(r->at[c->to] + at, src, (int)n, c->attr);
    }
}

/* Adds the products of two tiles to the accumulators of a sum across rows. */
static void products_across(const runner *r, const fxi_row_fused *f, const fxi_row_call *c,
                            const tile *t)
{
    const fxi_row_plan *p = r->p;
    const fxi_fused_loops *loops = fxi_cpu_simd()->fused;
    const float *x = (const float *)r->at[f->at[1]], *z = (const float *)r->at[f->at[2]];
    double *acc = (double *)(r->sums + p->sums[c->across - 1].at) +
                  (r->first + t->first) % p->groups * p->width;
    /* Each element has an accumulator, or a run of them has one. */
    if (p->run == 1) {
        loops->products(x, z, t->n, acc + t->from);
        return;
    }
    for (int64_t from = t->from, end = from + t->n, n; from < end; from += n, x += n, z += n) {
        const int64_t left = p->run - from % p->run;
        n = left < end - from ? left : end - from;
        loops->dot(x, z, n, acc + from / p->run);
    }
}

/* The loops that have no sums. */
static void (*loop_of(const fxi_fused_loops *loops,
                      fxi_row_fused_kind kind))(const fxi_fused_tile *)
{
    return kind == FXI_ROW_NORM    ? loops->norm
           : kind == FXI_ROW_SHIFT ? loops->shift
                                   : loops->exponentials;
}

/* Computes several calls, of which c is the first, in one loop. Returns false if the tile is too
 * short for the loop, or if `reduce` calls the loop. */
static bool run_fused(const runner *r, const fxi_row_call *c, const tile *t)
{
    const fxi_row_fused *f = &r->p->fused[c->fused - 1];
    const fxi_fused_loops *loops = fxi_cpu_simd()->fused;
    fxi_fused_tile of = {.n = t->n, .ahead = f->ahead, .streams = f->streams};
    if (f->kind == FXI_ROW_DEVIATIONS)
        return false;
    if (f->kind == FXI_ROW_STREAMED) {
        const void *const src[] = {r->at[c->src[0]], r->at[c->src[1]], r->at[c->src[2]]};
        f->loop(r->at[f->at[0]], src, t->n, c->attr);
        return true;
    }
    if (f->kind == FXI_ROW_PRODUCTS) {
        products_across(r, f, c + 1, t);
        return true;
    }
    /* The reducers add so few terms in order, and the loop adds them in lanes. */
    if (f->kind == FXI_ROW_DOTS && t->n < SHORT_ROW)
        return false;
    for (int k = 0; k < FXI_FUSED_OPERANDS; k++)
        of.at[k] = f->at[k] < 0 ? NULL : r->at[f->at[k]];
    if (f->kind != FXI_ROW_DOTS) {
        loop_of(loops, f->kind)(&of);
        return true;
    }
    /* The sums of a row may be added in several tiles. */
    const fxi_row_call *const sums[] = {c + 2, c + 4};
    for (int k = 0; k < 2 && t->begins; k++)
        sums[k]->reducer->init(r->at[sums[k]->to], 1);
    loops->dots(&of);
    for (int k = 0; k < 2 && t->ends; k++)
        sums[k]->reducer->done(r->at[sums[k]->to], 1,
                               r->at[sums[k]->src[1]] + t->first * sums[k]->size);
    return true;
}

static void run_calls(const runner *r, int32_t from, int32_t to, const tile *t)
{
    for (const fxi_row_call *c = r->p->calls + from, *end = r->p->calls + to; c < end; c++) {
        if (c->fused && run_fused(r, c, t)) {
            c += r->p->fused[c->fused - 1].calls - 1;
            continue;
        }
        /* Unused operands name location 0, which exists. */
        const void *const src[] = {r->at[c->src[0]], r->at[c->src[1]], r->at[c->src[2]]};
        if (c->sparse)
            choose(r, c, t);
        /* Without a loop the call is a reduction. */
        else if (c->loop)
            c->loop(r->at[c->to], src, t->n, c->attr);
        else
            (c->across ? sum_across : reduce)(r, c, t);
    }
}

/* ---- a pass over a block --------------------------------------------------------------------- */

/* Prepares a pass for the next row, or for several whole ones: values of rows are spread, and
 * operands that repeat with every row start again. */
static void begin_row(runner *r, int pass, const tile *t)
{
    const fxi_row_plan *p = r->p;
    const int64_t n = p->tile_rows ? p->inner : t->n;
    /* The lists of all passes are one list; each pass knows its end. */
    for (int k = pass > 0 ? p->passes[pass - 1].spreads : 0; k < p->passes[pass].spreads; k++)
        spread(r, &p->spreads[k], t->first, t->rows, n);
    /* A repeated row is read from its start again. */
    for (int k = 0; k < p->nrepeated; k++)
        r->at[p->repeated[k].to] = r->at[p->repeated[k].from];
    for (int k = 0; k < p->nones; k++)
        r->at[p->ones[k].to] = r->at[p->ones[k].from] + t->first * p->ones[k].size;
}

/* Repeats the values of the stretch that begins with tile t, for all tiles of the stretch. Each
 * value is written once for a stretch and not once for a tile, which took a third of a group norm's
 * time: tiles end where stretches end, so all of them read the same numbers. */
static void begin_stretch(const runner *r, int pass, const tile *t)
{
    const fxi_row_plan *p = r->p;
    for (int k = pass > 0 ? p->passes[pass - 1].fills : 0; k < p->passes[pass].fills; k++)
        spread(r, &p->fills[k], (t->first * p->inner + t->from) / p->stretch, 1, p->tile);
}

/* Repeated rows advance too, and begin_row sets them back at the start of each row. */
static void move_on(runner *r, int n, int64_t skipped)
{
    const fxi_row_plan *p = r->p;
    for (int k = 0; k < p->nmovers; k++) {
        /* In operands and outputs, pieces of other rows are between the pieces of a row; in scratch
         * the pieces of a row are neighbours. */
        const int64_t skip = p->movers[k].to < p->nin + p->nout ? skipped : 0;
        r->at[p->movers[k].to] += (n + skip) * p->movers[k].size;
    }
    for (int k = 0; k < p->nrepeated; k++)
        r->at[p->repeated[k].to] += (int64_t)n * p->repeated[k].size;
}

/* Runs the calls of a tile, and before each one requests some cache lines of the next block, which
 * are `block` elements after those of the tile. After the last block they may be outside of an
 * array, where a prefetch has no effect. All requests at once would stall: the processor can have
 * only a few lines in flight. */
static void run_ahead(const runner *r, const fxi_row_pass *q, const tile *t, int64_t block)
{
    enum { LINE = 64, SECOND_LEVEL = 2 };
    const fxi_row_plan *p = r->p;
    const int calls = q->last - q->elements, each = (t->n + calls - 1) / calls;
    for (int k = 0, next; k < calls; k = next) {
        const fxi_row_call *c = &p->calls[q->elements + k];
        next = k + (c->fused ? p->fused[c->fused - 1].calls : 1);
        for (int i = 0; i < p->nahead; i++) {
            const int size = p->ahead[i].size;
            const char *from = r->at[p->ahead[i].to] + (block + k * each) * size;
            for (const char *line = from, *end = from + (next - k) * each * size; line < end;
                 line += LINE)
                __builtin_prefetch(line, 0, SECOND_LEVEL);
        }
        run_calls(r, q->elements + k, q->elements + next, t);
    }
}

/* A pass over a block's elements. Tiles never cross the end of a row unless they hold whole
 * rows. */
static void run_elements(runner *r, int pass, int64_t rows)
{
    const fxi_row_plan *p = r->p;
    const fxi_row_pass *q = &p->passes[pass];
    int64_t left = p->stretch; /* elements of the stretch or piece from the tile on */
    /* Each pass reads the block again from its start. */
    for (int k = 0; k < p->nmovers; k++)
        r->at[p->movers[k].to] = r->start[k];
    for (tile t = {.rows = 1}; t.first < rows;) {
        /* Counted instead of computed from an index: a division takes as long as a short call. */
        t.n = left < p->tile ? (int)left : p->tile;
        if (p->tile_rows) {
            t.rows = rows - t.first < p->tile_rows ? (int)(rows - t.first) : p->tile_rows;
            t.n = (int)(t.rows * p->inner);
        }
        t.begins = t.from == 0;
        /* A tile of whole rows begins and ends them. */
        t.ends = p->tile_rows || t.from + t.n == p->inner;
        if (t.begins)
            begin_row(r, pass, &t);
        if (left == p->stretch)
            begin_stretch(r, pass, &t);
        if (pass == p->ahead_pass && p->nahead > 0)
            run_ahead(r, q, &t, rows * p->inner);
        else
            run_calls(r, q->elements, q->last, &t);
        left -= t.n;
        move_on(r, t.n, left == 0 ? p->apart - p->piece : 0);
        left = left > 0 ? left : p->stretch;
        t.from = t.ends ? 0 : t.from + t.n;
        t.first += t.ends ? t.rows : 0;
    }
}

/* Repeats the values of a block's columns for each of the `terms` elements of a tile. */
static void repeat(const runner *r, const fxi_row_link *l, int64_t rows, int64_t terms)
{
    char *to = r->at[l->to];
    const size_t once = (size_t)rows * l->size;
    memcpy(to, r->at[l->from], once);
    fxi_fill_period(to, once, once * (size_t)terms);
}

/* A pass over the elements of a block of columns. */
static void run_columns(runner *r, int pass, int64_t rows)
{
    const fxi_row_plan *p = r->p;
    const fxi_row_pass *q = &p->passes[pass];
    const int64_t terms = p->tile / p->block;
    for (int k = 0; k < p->nmovers; k++)
        r->at[p->movers[k].to] = r->start[k];
    /* Calls read one value for each element, so what earlier passes have found for a column is
     * repeated for each of its terms. */
    for (int k = pass > 0 ? p->passes[pass - 1].spreads : 0; k < q->spreads; k++)
        repeat(r, &p->spreads[k], rows, terms);
    for (int64_t done = 0, n; done < p->inner; done += n) {
        n = p->inner - done < terms ? p->inner - done : terms;
        const tile t = {.rows = (int)rows,
                        .n = (int)(n * rows),
                        .begins = done == 0,
                        .ends = done + n == p->inner};
        run_calls(r, q->elements, q->last, &t);
        move_on(r, t.n, n * (p->columns - rows));
    }
}

/* Values of rows are computed for the whole block before its elements, one call for each
 * instruction. */
static void run_pass(runner *r, int pass, int64_t rows)
{
    const fxi_row_pass *q = &r->p->passes[pass];
    run_calls(r, q->first, q->elements, &(tile){.n = (int)rows});
    /* The last pass may have values of rows only. */
    if (q->elements < q->last)
        (r->p->columns ? run_columns : run_elements)(r, pass, rows);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void run_block(runner *r, int64_t first, int64_t rows)
{
    const fxi_row_plan *p = r->p;
    r->first = first;
    /* p->offset[k]·first skips one element for each column before the block. `passed` are the other
     * elements of these columns. */
    const int64_t passed = p->columns ? first / p->columns * (p->inner - 1) * p->columns : 0;
    for (int k = 0; k < p->nin; k++)
        /* Operands that do not advance with the rows have offset 0. */
        r->at[k] = (char *)(uintptr_t)r->in[k] + first * p->offset[k];
    for (int k = 0; k < p->nout; k++)
        r->at[p->nin + k] = (char *)r->out[k] + first * p->offset[p->nin + k];
    for (int k = 0; k < p->nmovers; k++) {
        const fxi_row_link *l = &p->movers[k];
        char *first_element = l->to < p->nin + p->nout ? r->at[l->to] + passed * l->size
                                                       : r->scratch + p->offset[l->to];
        r->start[k] = r->at[l->to] = first_element;
    }
    for (int k = 0; k < p->nloads; k++)
        /* Single numbers were loaded at the start of the part. */
        if (p->loads[k].extent != FXI_ROW_ONE)
            load(r, k, first, rows);
    for (int k = 0; k < p->npasses; k++)
        run_pass(r, k, rows);
    /* The calls after the last pass round 16-bit values of rows to memory. */
    run_calls(r, p->passes[p->npasses - 1].last, p->ncalls, &(tile){.n = (int)rows});
}

/* Does the preparations that serve all blocks of a part: scalars are spread and repeated rows are
 * laid out once. */
static void begin_part(runner *r, int64_t first)
{
    const fxi_row_plan *p = r->p;
    for (int k = 0; k < p->nin; k++)
        r->at[k] = (char *)(uintptr_t)r->in[k];
    for (int k = p->nin + p->nout; k < p->nlocations; k++)
        r->at[k] = r->scratch + p->offset[k];
    for (int k = 0; k < p->nloads; k++) {
        const uint8_t extent = p->loads[k].extent;
        r->walks[k] = p->loads[k].walk;
        if (extent == FXI_ROW_ONE)
            load(r, k, 0, 1);
        else
            /* A part may begin anywhere in the operand. */
            fxi_walk_seek(&r->walks[k], first * values_of_row(p, extent));
    }
    for (int k = 0; k < p->nsplats; k++)
        spread(r, &p->splats[k], 0, 1, p->tile > p->block ? p->tile : p->block);
    for (int k = 0; k < p->nlaid; k++)
        for (int64_t row = 0; row < p->tile_rows; row++)
            memcpy(r->at[p->laid[k].to] + row * p->inner * p->laid[k].size, r->at[p->laid[k].from],
                   (size_t)p->inner * p->laid[k].size);
}

typedef struct job {
    const fxi_row_plan *p;
    const void *const *in;
    void *const *out;
    char *sums; /* accumulators of the sums across rows, by part */
    int64_t blocks, parts;
} job;

/* Joins the accumulators of a sum across rows in the order of the parts, and stores the sum. */
static void finish_sum(const job *j, const fxi_row_sum *sum)
{
    const fxi_reducer *op = sum->reducer;
    const int64_t count = j->p->groups * j->p->width;
    char *acc = j->sums + sum->at, *out = j->out[sum->out];
    for (int64_t part = 1; part < j->parts; part++)
        op->merge(acc, acc + part * j->p->sums_bytes, count);
    if (!fxi_cpu_is_half(sum->dtype)) {
        op->done(acc, count, out);
        return;
    }
    /* Accumulators of 16-bit types are wider: the sum is rounded once, here. */
    for (int64_t i = 0, n; i < count; i += n) {
        float results[FXI_TILE];
        const void *const from[] = {results};
        n = count - i < FXI_TILE ? count - i : FXI_TILE;
        op->done(acc + i * (int64_t)op->size, n, results);
        fxi_cpu_simd()->store[sum->dtype == FX_DTYPE_BF16](out + i * (int64_t)sizeof(uint16_t),
                                                           from, (int)n, 0);
    }
}

/* A part is a range of blocks. Its state is on its stack, in its own scratch, and in its own
 * accumulators of sums across rows. */
static void run_part(void *user, int64_t part, void *scratch)
{
    const job *j = user;
    const fxi_row_plan *p = j->p;
    int64_t from, to;
    runner r;
    r.p = p;
    r.in = j->in;
    r.out = j->out;
    r.scratch = scratch;
    fxi_cpu_range(j->blocks, j->parts, part, &from, &to);
    for (int k = 0; k < p->nsums; k++) {
        r.sums = j->sums + part * p->sums_bytes;
        p->sums[k].reducer->init(r.sums + p->sums[k].at, p->groups * p->width);
    }
    const int64_t near = fxi_row_near(p), each = (near + p->block - 1) / p->block;
    int64_t row = from / each * near + from % each * p->block;
    begin_part(&r, row);
    for (; from < to; from++) {
        const int64_t left = near - row % near, rows = left < p->block ? left : p->block;
        run_block(&r, row, rows);
        row += rows;
    }
    /* Stores past the caches must be complete before another thread reads them. */
    if (p->streams)
        fxi_cpu_simd()->stream_end();
}

fx_status fxi_cpu_row(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    const fxi_row_plan *p = step->ready;
    if (!p)
        return fxi_cpu_no_dtype(step, step->out.dtype);
    void *outs[1 + FX_MORE_OUTPUTS];
    outs[0] = out;
    for (int k = 0; k < fx_step_row(step)->more.n; k++)
        outs[1 + k] = run->more[k];
    job j = {.p = p, .in = in, .out = outs, .blocks = fxi_row_blocks(p)};
    j.parts = fxi_cpu_parts(j.blocks, p->cost);
    if (p->nsums > 0) {
        /* The work space has accumulators for the parts that were planned. */
        j.parts = p->parts;
        j.sums = run->work;
    }
    /* Each thread has scratch of its own, for the tiles and values of its current block. */
    if (fxi_cpu_parallel_scratch(j.parts, (size_t)p->scratch, run_part, &j))
        return fxi_cpu_no_memory(step);
    for (int k = 0; k < p->nsums; k++)
        finish_sum(&j, &p->sums[k]);
    return FX_OK;
}

fx_status fxi_cpu_row_prepare(fx_step *step)
{
    fxi_row_plan *p;
    const fx_status status = fxi_row_plan_make(step, &p);
    step->ready = p;
    if (!status)
        step->work_bytes = p->parts * p->sums_bytes;
    return status;
}

void fxi_cpu_row_release(fx_step *step)
{
    fxi_row_plan_free(step->ready);
}
