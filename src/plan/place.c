/* place.c: gives the values between steps their offsets in the arena, so that values which are
 * never needed at the same time share memory.
 *
 * One pass over the steps with a list of free gaps. An output takes the smallest gap that holds it
 * (best fit). The bytes of a value become a gap when its last reader has run. The main output of an
 * elementwise or row step takes over the bytes of an input that no later step reads, if it may
 * write over that input (in_place.c). The work space of a step is taken after its outputs and freed
 * with the values that end there, so it shares bytes with no operand of the step. Gaps are sorted
 * and merged; as long as there are few, the time is linear in the number of steps.
 */
#include "plan.h"

#include <string.h>

typedef struct gap {
    int64_t offset, bytes;
} gap;

typedef struct arena {
    gap *gaps;
    int32_t n, capacity;
    int64_t end; /* bytes; the arena's size so far */
} arena;

/* Sizes are rounded too, so that every offset stays aligned. */
static int64_t rounded(int64_t bytes)
{
    return (bytes + FXI_ARENA_ALIGN - 1) / FXI_ARENA_ALIGN * FXI_ARENA_ALIGN;
}

/* Takes bytes from the smallest gap that holds them, or extends the arena. */
static int64_t take(arena *a, int64_t bytes)
{
    int32_t best = -1;
    for (int32_t i = 0; i < a->n; i++)
        if (a->gaps[i].bytes >= bytes && (best < 0 || a->gaps[i].bytes < a->gaps[best].bytes))
            best = i;
    if (best < 0) {
        int64_t at = a->end;
        if (a->n > 0 && a->gaps[a->n - 1].offset + a->gaps[a->n - 1].bytes == a->end)
            at = a->gaps[--a->n].offset; /* extend the gap at the end of the arena */
        a->end = at + bytes;
        return at;
    }
    /* The value takes the front of the gap. The rest stays one gap, so the list stays sorted. */
    gap *g = &a->gaps[best];
    const int64_t at = g->offset;
    g->offset += bytes;
    g->bytes -= bytes;
    if (g->bytes == 0) {
        memmove(g, g + 1, (size_t)(a->n - best - 1) * sizeof *g);
        a->n--;
    }
    return at;
}

/* Returns bytes to the list of gaps and merges them with both neighbours: without merging, large
 * values would find no gap later. */
static bool give(arena *a, int64_t offset, int64_t bytes)
{
    if (bytes == 0)
        return true;
    if (!fxi_grow(&a->gaps, &a->capacity, a->n + 1, sizeof *a->gaps))
        return false;
    int32_t lo = 0, hi = a->n;
    /* Gaps are sorted by offset, so both neighbours are found by one binary search. */
    while (lo < hi) {
        const int32_t mid = (lo + hi) / 2;
        if (a->gaps[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    const bool left = lo > 0 && a->gaps[lo - 1].offset + a->gaps[lo - 1].bytes == offset;
    const bool right = lo < a->n && offset + bytes == a->gaps[lo].offset;
    if (left && right) {
        a->gaps[lo - 1].bytes += bytes + a->gaps[lo].bytes;
        memmove(&a->gaps[lo], &a->gaps[lo + 1], (size_t)(a->n - lo - 1) * sizeof(gap));
        a->n--;
    } else if (left) {
        a->gaps[lo - 1].bytes += bytes;
    } else if (right) {
        a->gaps[lo].offset = offset;
        a->gaps[lo].bytes += bytes;
    } else {
        memmove(&a->gaps[lo + 1], &a->gaps[lo], (size_t)(a->n - lo) * sizeof(gap));
        a->gaps[lo] = (gap){offset, bytes};
        a->n++;
    }
    return true;
}

/* An input of step i whose bytes its output may take over, since no later step reads it; −1: none.
 */
static int32_t inheritable(const fxi_plan *p, int32_t i, const fxi_inside *inside)
{
    const fx_step *s = &p->steps[i];
    /* The first that fits: all have the size of the output, so none is better. */
    for (int k = 0; k < s->nin; k++) {
        const int32_t v = s->in_value[k];
        if (p->values[v].kind == FXI_VALUE_ARENA && p->values[v].last == i &&
            !(inside && inside[v].value >= 0) &&
            fxi_reads(p, s, v, s->out_value) == FXI_READS_IN_PLACE)
            return v;
    }
    return -1;
}

/* For each step, the values whose last reader it is, in a list linked by `next`; −1 ends it. */
static bool deaths(const fxi_plan *p, int32_t **out_head, int32_t **out_next)
{
    int32_t *head = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *head);
    int32_t *next = fxi_malloc(((size_t)p->nvalues + 1) * sizeof *next);
    *out_head = head;
    *out_next = next;
    if (!head || !next)
        return false;
    memset(head, -1, ((size_t)p->nsteps + 1) * sizeof *head);
    for (int32_t v = 0; v < p->nvalues; v++) {
        /* Output buffers and leaves are not in the arena, and fusion leaves values that no step
         * writes any more (`last` is −1). */
        if (p->values[v].kind != FXI_VALUE_ARENA || p->values[v].last < 0)
            continue;
        next[v] = head[p->values[v].last];
        head[p->values[v].last] = v;
    }
    return true;
}

/* Gives output v of step i its offset, and returns the value whose bytes it takes over; −1: none.
 * A concatenation's output gets its bytes together with the first value that is inside it. */
static int32_t place_output(fxi_plan *p, arena *a, int32_t i, int32_t v, const fxi_inside *inside)
{
    fxi_value *out = &p->values[v];
    const bool is_inside = inside && inside[v].value >= 0;
    fxi_value *whole = is_inside ? &p->values[inside[v].value] : out;
    if (out->kind != FXI_VALUE_ARENA)
        return -1;
    const int32_t inherited =
        !is_inside && v == p->steps[i].out_value ? inheritable(p, i, inside) : -1;
    if (inherited >= 0)
        out->offset = p->values[inherited].offset;
    else if (whole->offset < 0)
        whole->offset = take(a, rounded(whole->bytes));
    if (is_inside)
        out->offset = whole->offset + inside[v].skip;
    return inherited;
}

/* Gives all values their offsets. *out_bytes: the size of the arena. False if an allocation fails.
 */
static bool place_all(fxi_plan *p, const int32_t *head, const int32_t *next,
                      const fxi_inside *inside, int64_t *out_bytes)
{
    arena a = {0};
    bool ok = true;
    for (int32_t v = 0; v < p->nvalues; v++)
        p->values[v].offset = p->values[v].kind == FXI_VALUE_ARENA ? -1 : p->values[v].offset;
    for (int32_t i = 0; i < p->nsteps && ok; i++) {
        const fx_step *s = &p->steps[i];
        int32_t inherited = -1;
        for (int32_t k = 0; k < fx_step_outputs(s); k++) {
            const int32_t from = place_output(p, &a, i, fx_step_output(s, k), inside);
            inherited = k == 0 ? from : inherited;
        }
        if (s->work_bytes > 0)
            p->values[s->work_value].offset = take(&a, rounded(p->values[s->work_value].bytes));
        /* Freed when all outputs and the work space have memory: a step must not write over an
         * operand that it still reads. */
        for (int32_t v = head[i]; v >= 0 && ok; v = next[v])
            if (v != inherited && !(inside && inside[v].value >= 0))
                ok = give(&a, p->values[v].offset, rounded(p->values[v].bytes));
    }
    *out_bytes = a.end;
    fxi_free(a.gaps);
    return ok;
}

bool fxi_plan_place(fxi_plan *p, bool joins)
{
    int32_t *head = NULL, *next = NULL;
    fxi_inside *inside = joins ? fxi_malloc(((size_t)p->nvalues + 1) * sizeof *inside) : NULL;
    int64_t bytes = 0, least = INT64_MAX;
    bool ok = deaths(p, &head, &next) && (inside || !joins);
    const bool any = ok && joins && fxi_find_inside(p, inside);
    /* The output of a concatenation is kept from the first value that is inside it. If that makes
     * the arena larger, values are copied. */
    if (any)
        ok = place_all(p, head, next, NULL, &least) && place_all(p, head, next, inside, &bytes);
    if (ok && (!any || bytes > least))
        ok = place_all(p, head, next, NULL, &bytes);
    /* Literals and streams are at the end of the arena: no step writes there, and one write fills
     * both. */
    p->literals_offset = bytes;
    p->arena_bytes = bytes + rounded(p->literals_bytes);
    fxi_free(inside);
    fxi_free(head);
    fxi_free(next);
    return ok;
}
