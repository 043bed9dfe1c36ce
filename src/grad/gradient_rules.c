/* gradient_rules.c: the table of gradient rules, by operation. The rules are in src/ops, next to
 * the functions that record the operations, because a rule is understood only together with its
 * forward formula. The table is filled from op.def: an operation that is declared SMOOTH there and
 * has no rule does not link. NULL: the operation has no gradient (comparisons, integers), and a
 * sweep passes nothing on.
 */
#include "gradient_rules.h"

const fxi_gradient_rule fxi_gradient_rules[FX_OP_COUNT] = {
#define TABLE_NONE(NAME)
#define TABLE_SMOOTH(NAME)                           [FX_OP_##NAME] = fxi_gradient_##NAME,
#define OP(NAME, name, inputs, cls, words, gradient) TABLE_##gradient(NAME)
#include <cflux/op.def>
};
