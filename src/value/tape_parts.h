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
/* Makes n the operand of those entries that have entry i as an operand. */
void fxi_tape_pass_entry(fxi_tape *t, int32_t i, fxi_node *n);
/* Call this when the training step closes. Exchanges the nodes back: each overwritten leaf has its
 * own node again, whose value is now the new one. */
void fxi_tape_end_overwritten(fxi_context *c, fxi_tape *t);
/* Frees what the entries from `first` on own. */
void fxi_tape_cut(fxi_tape *t, int32_t first);
/* Call this when the training step closes. Binds the handle to its old node (the leaf) again, whose
 * memory has the new value, and returns true; the caller counts the node as no longer stale. Then
 * the ghost stays on the tape, and the update makes no node. Returns false, and the handle keeps
 * the ghost, if anything else refers to one of the two nodes, or if they differ in operation,
 * device or memory. The node of an initial value has another operation than that of an update, so
 * this happens once for each parameter. */
bool fxi_tape_give_back(fxi_context *c, const fxi_tape_rebound *r);
void fxi_events_free(fxi_event *e);
/* Drops the events that this training step has not reached. They are freed when it closes, because
 * their owners may still use them. */
void fxi_events_cut(fxi_tape *t);

#endif
