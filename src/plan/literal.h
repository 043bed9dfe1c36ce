/* literal.h: nodes made of literals alone, which no step computes. */
#ifndef CFLUX_LITERAL_H
#define CFLUX_LITERAL_H

#include "build.h"

/* Marks the nodes whose elements all equal one number that only literals determine. `out`: one
 * entry for each node of g. Without `computes`: only the literals themselves and their conversions.
 */
void fxi_find_literals(const fxi_graph *g, bool computes, bool *out);

/* Places node id, which fxi_find_literals has marked. False if an allocation fails. */
bool fxi_place_literal(fxi_builder *b, int32_t id);

#endif
