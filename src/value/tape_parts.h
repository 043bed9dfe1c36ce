/* tape_parts.h: shared by the files tape*.c. Internal to them. */
#ifndef CFLUX_TAPE_PARTS_H
#define CFLUX_TAPE_PARTS_H

#include "tape.h"

/* A pending copy of n that the tape owns, with memory for its inputs. NULL: the allocation failed.
 */
fxi_node *fxi_ghost_of(const fxi_node *n, int32_t nin);
void fxi_ghost_free(fxi_node *g);
/* Returns true if n is leaf i of this training step. If the leaf has no node yet, n becomes its
 * node. */
bool fxi_tape_is_leaf(fxi_tape *t, int32_t i, fxi_node *n);
void fxi_tape_drop_leaves(fxi_tape *t);
/* Frees what the entries from `first` on own. */
void fxi_tape_cut(fxi_tape *t, int32_t first);
/* When the step closes: the handle holds its old node again, whose memory has the new value, if
 * nothing else refers to either of the two nodes. So the ghost stays on the tape, and most updates
 * make no nodes. A node with another operation is replaced once, by the node of the update. Returns
 * whether the handle holds its old node, which the caller counts as no longer stale. */
bool fxi_tape_give_back(fxi_context *c, const fxi_tape_rebound *r);
void fxi_events_free(fxi_event *e);
/* Drops the events that this training step has not reached. They are freed when it closes, because
 * their owners may still use them. */
void fxi_events_cut(fxi_tape *t);

#endif
