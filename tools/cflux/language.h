/* language.h: language models: pieces of a text as observations, and the scores of forecasts of the
 * next token. */
#ifndef CFLUX_TOOL_LANGUAGE_H
#define CFLUX_TOOL_LANGUAGE_H

#include "problem.h"

/* The kind of a dataset and of a saved model. */
#define KIND_LANGUAGE "language"

/* Functions that return an int return EXIT_FINE, or the exit status of a failure (printed). */

/* Fills in kind, x and y: consecutive pieces of the text as columns of r->context ids (Int32), and
 * for each id the next one. A rest that is shorter than a piece is left out. */
int read_text_pieces(const data_request *r, dataset *d);

/* Makes the problem that of a language model: its loss, and the number of characters of each token.
 */
int language_problem(problem *p, const fx_tokenizer *t, int64_t context);

/* Checks the model's outputs for the first piece: a score for each token at each position, which
 * depends only on the ids up to the position. */
int language_check(const problem *p, void *model, fx_array *x, const fx_array *output);

/* The default model: a GRU. */
const char *language_model(const problem *p);

/* The number of characters in targets, as a scalar. A character is counted at its first byte. */
fx_array *language_characters(const problem *p, fx_array *y);

/* Perplexity: exp(loss). Nats per character: the loss of all tokens, divided by the number of
 * characters. */
double perplexity_of(const scores *s);
double nats_per_character(const problem *p, const scores *s);
/* Prints "perplexity 4.6, 1.52 nats per character", without a line end. */
void print_language_scores(const problem *p, const scores *s);
/* Members "perplexity" and "nats_per_character". */
void put_language_scores(fx_json *j, const problem *p, const scores *s);

#endif
