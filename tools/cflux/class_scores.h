/* class_scores.h: precision, recall and F1 of each class, and the weights of classes in the loss.
 */
#ifndef CFLUX_TOOL_CLASS_SCORES_H
#define CFLUX_TOOL_CLASS_SCORES_H

#include "problem.h"
#include <cflux/json_out.h>

/* The mean of the classes' F1 scores, from 0 to 1 (macro F1). NaN without classes. */
double mean_f1(const problem *p, const scores *s);
/* Prints a class name, made safe for a terminal and right-aligned in a column; to NULL: only
 * measures it. Returns its width. */
int put_class_name(FILE *to, const problem *p, int64_t i, int width);
/* The width of the widest class name, at least `least`. */
int class_name_width(const problem *p, int least);
/* Prints a table: a row for each class and a row of means. Nothing if out of memory. */
void print_class_scores(const problem *p, const scores *s);
/* Members "precision", "recall" and "f1": a number for each class, and "mean_f1". */
void put_class_scores(fx_json *j, const problem *p, const scores *s);
/* Warns if the model predicts a class for none of the observations although some belong to it. */
void warn_of_unpredicted(const problem *p, const scores *s);

/* Sets p->weights from the text of --class-weights: "balanced" (n/(k·nᵢ) for the nᵢ of n targets
 * y that belong to class i of k), "sqrt" (its square root), or a number for each class, such as
 * 1,5. NULL: no weights.
 * Returns EXIT_FINE, or the exit status of a failure (printed). */
int class_weights(problem *p, const char *text, fx_array *y);

#endif
