/* place.c: where in the arena the values between steps live.
 *
 * One pass over the steps with a list of free gaps, best fit: an output takes the smallest gap that
 * holds it, and a value's bytes return when its last reader has run. The first output of an
 * elementwise step takes over the bytes of an input that dies there, if the step may write over
 * that input (in_place.c). A step's work space is taken after its outputs and returns with the
 * values that die there, so it shares bytes with no operand of the step. Gaps are kept sorted and
 * merged, so the time is linear in the steps as long as gaps are few.
 */
#include "plan.h"

#include <string.h>

enum { ALIGN = 64 };

typedef struct gap {
    int64_t offset, bytes;
} gap;

typedef struct arena {
    gap *gaps;
    int32_t n, capacity;
    int64_t end; /* bytes in use, the arena's size so far */
} arena;

static int64_t rounded(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t take(arena *a, int64_t bytes)
{
    int32_t best = -1;
    for (int32_t i = 0; i < a->n; i++)
        if (a->gaps[i].bytes >= bytes && (best < 0 || a->gaps[i].bytes < a->gaps[best].bytes))
            best = i;
    if (best < 0) {
        int64_t at = a->end;
        if (a->n > 0 && a->gaps[a->n - 1].offset + a->gaps[a->n - 1].bytes == a->end)
            at = a->gaps[--a->n].offset; /* grow the gap at the end */
        a->end = at + bytes;
        return at;
    }
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

static bool give(arena *a, int64_t offset, int64_t bytes)
{
    if (bytes == 0)
        return true;
    if (!fxi_grow(&a->gaps, &a->capacity, a->n + 1, sizeof *a->gaps))
        return false;
    int32_t lo = 0, hi = a->n;
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

/* An input of step i that no later step reads and whose bytes its output may take over; -1: none.
 */
static int32_t heir(const fxi_plan *p, int32_t i)
{
    const fx_step *s = &p->steps[i];
    for (int k = 0; k < s->nin; k++) {
        const int32_t v = s->in_value[k];
        if (p->values[v].kind == FXI_VALUE_ARENA && p->values[v].last == i &&
            fxi_reads(p, s, v, s->out_value) == FXI_READS_IN_PLACE)
            return v;
    }
    return -1;
}

/* Values dying at each step, as linked lists through `next`; −1 ends a list. */
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
        if (p->values[v].kind != FXI_VALUE_ARENA || p->values[v].last < 0)
            continue;
        next[v] = head[p->values[v].last];
        head[p->values[v].last] = v;
    }
    return true;
}

bool fxi_plan_place(fxi_plan *p)
{
    int32_t *head = NULL, *next = NULL;
    arena a = {0};
    bool ok = deaths(p, &head, &next);
    for (int32_t i = 0; i < p->nsteps && ok; i++) {
        fxi_value *out = &p->values[fx_step_output(&p->steps[i], 0)];
        int32_t inherited = -1;
        if (out->kind == FXI_VALUE_ARENA) {
            inherited = heir(p, i);
            out->offset =
                inherited >= 0 ? p->values[inherited].offset : take(&a, rounded(out->bytes));
        }
        for (int32_t k = 1; k < fx_step_outputs(&p->steps[i]); k++) {
            fxi_value *more = &p->values[fx_step_output(&p->steps[i], k)];
            if (more->kind == FXI_VALUE_ARENA)
                more->offset = take(&a, rounded(more->bytes));
        }
        if (p->steps[i].work_bytes > 0) {
            fxi_value *work = &p->values[p->steps[i].work_value];
            work->offset = take(&a, rounded(work->bytes));
        }
        for (int32_t v = head[i]; v >= 0 && ok; v = next[v])
            if (v != inherited)
                ok = give(&a, p->values[v].offset, rounded(p->values[v].bytes));
    }
    p->slots_offset = a.end;
    p->arena_bytes = a.end + rounded(p->slots_bytes);
    fxi_free(a.gaps);
    fxi_free(head);
    fxi_free(next);
    return ok;
}
