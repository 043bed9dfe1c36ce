/* dataset_text.h: reads text files, plain or gzip, with a text in each line. A line for training
 * begins with a label, as fastText reads it: "__label__NAME text". */
#ifndef CFLUX_TOOL_DATASET_TEXT_H
#define CFLUX_TOOL_DATASET_TEXT_H

#include "dataset.h"

/* The most tokens of a line that are used. */
enum { LINE_TOKENS = 1000 };

/* True for a file that begins with a label. */
bool holds_labelled_text(const char *path);

/* Fails because the data needs --model. Returns EXIT_BAD_INPUT. */
int refuse_without_model(const char *path);

/* Learns a tokenizer of at most `vocabulary` tokens from the files of the request. Returns
 * EXIT_FINE, or the exit status of a failure (printed). */
int learn_tokenizer(data_request *r, int64_t vocabulary);

/* Fills in kind, x, y, labels and target; x: ids of r->tokenizer, see fx_tokenizer_encode_texts.
 * Without targets the lines need no labels. Returns EXIT_FINE, or the exit status of a failure
 * (printed). */
int read_text_lines(const data_request *r, dataset *d);

/* Gives the ids of several files the same number of rows. */
void align_texts(dataset *parts, int n);

#endif
