/* row_search.h: the state of the search for one row step: row.c adds members, row_trim.c removes
 * some or rejects the step.
 */
#ifndef CFLUX_ROW_SEARCH_H
#define CFLUX_ROW_SEARCH_H

#include "row.h"

/* Marks of nodes during a search. */
enum {
    FXI_ROW_MEMBER = 1,
    FXI_ROW_FEEDS = 2,  /* it is an input of a member */
    FXI_ROW_BEFORE = 4, /* outside, and a member is computed from it; or an input of such a node */
    FXI_ROW_AFTER = 8,  /* outside, and computed from a member */
    FXI_ROW_LISTED = 16 /* in fxi_row_search.marked */
};

typedef struct fxi_row_search {
    const fxi_graph *g;
    const bool *literal; /* per node: whether it is a literal, which is in no step */
    bool around;         /* rows may be around kept axes */
    bool own_memory; /* the device has memory of its own: it divides a long row between work-groups,
                        and sums across rows do not join */
    int64_t longest; /* the most bytes of a row that is not around kept axes; with at least
                        FXI_ROW_PIECE rows, FXI_ROW_AROUND if that is more */
    fxi_rows *out;
    int32_t *at; /* per node: its position in the order */
    uint8_t *mark;
    int32_t *marked, nmarked; /* nodes whose marks are cleared before the next search, which sees
                                 only a small part of a large graph */
    fxi_consumers consumers;
    const fxi_node *full, *reduced; /* nodes with the two shapes of the row step that grows */
    const fxi_node *sums;           /* its first sum across rows; NULL: none */
    int32_t first, last;            /* positions of the first and last member */
    int32_t low, high;              /* positions that are examined: low … high − 1 */
    /* Positions of the first and last node that can join: it is an input or a consumer of a member.
     * Sweeps end at these positions. */
    int32_t first_candidate, last_candidate;
    int32_t members, most;
    int32_t buffers; /* inputs and outputs that a row step may have together */
} fxi_row_search;

static inline void fxi_row_set_mark(fxi_row_search *s, int32_t id, int marks)
{
    if (marks && !(s->mark[id] & FXI_ROW_LISTED))
        s->marked[s->nmarked++] = id;
    s->mark[id] |= (uint8_t)(marks ? marks | FXI_ROW_LISTED : 0);
}

/* Clears the marks of the previous sweep. Membership is kept. */
static inline void fxi_row_keep_members(fxi_row_search *s)
{
    for (int32_t i = 0; i < s->nmarked; i++)
        s->mark[s->marked[i]] &= FXI_ROW_MEMBER | FXI_ROW_LISTED;
}

/* first and last are not narrowed: they only bound sweeps, and too wide a range costs only time. */
static inline void fxi_row_leave(fxi_row_search *s, int32_t id)
{
    s->members--;
    s->mark[id] &= (uint8_t)~FXI_ROW_MEMBER;
}

/* ---- what has grown (row_trim.c) ---- */

/* Counts the members whose value is needed outside, and marks them FXI_ROW_FEEDS. The sweeps are
 * finished, so the mark is free for this meaning. */
int32_t fxi_row_count_outputs(fxi_row_search *s);
/* Counts the operands of members that are outside. FXI_ROW_BEFORE marks those already counted. */
int32_t fxi_row_count_inputs(fxi_row_search *s);
/* Does the row step save anything? If members of full size use the result of a reduction, the row
 * is read once instead of twice. If values of the row use it (the division of a mean), they need no
 * step of their own. If there are several reductions (the gradients of scale and bias), their
 * common operands are read once. Otherwise the plain reduction of rule 2 computes the same with as
 * many steps.
 */
bool fxi_row_combines(const fxi_row_search *s);
/* Removes members of full size that are better left to a step outside. Sums with a product belong
 * to the step of the product. A value that only a later group reads is computed there instead of
 * being stored. For example, the group of the gradient computes the difference from the mean again,
 * from the values and the mean. Either no member reads a removed node, or the removed node reads no
 * member. */
void fxi_row_prune(fxi_row_search *s);

#endif
