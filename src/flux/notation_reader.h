/* notation_reader.h: the characters, names and numbers of a text in Julia's notation. Internal.
 *
 * The first failure ends the reading: it is recorded with its line and column (in characters, from
 * 1), and whatever is asked for after it is not there. Nothing is taken from the text unless the
 * function returns true.
 */
#ifndef CFLUX_NOTATION_READER_H
#define CFLUX_NOTATION_READER_H

#include <cflux/base.h>

enum { FXI_EXCERPT = 24, FXI_EXCERPT_BYTES = 4 * FXI_EXCERPT + 8, FXI_NAME_SHOWN = 64 };

typedef struct fxi_reader {
    const char *what, *text, *at;
    fx_status status;   /* of the first failure */
    bool record_before; /* somebody's failure, which stays */
    int depth, layers;
    int64_t parameters;
} fxi_reader;

/* A piece of the text. */
typedef struct fxi_span {
    const char *from, *to;
} fxi_span;

/* Begins to read `what`; false (recorded) without a text. */
bool fxi_reader_begin(fxi_reader *r, const char *what, const char *text);
/* Nothing has failed, and nothing is left but blanks and comments (else recorded). */
bool fxi_reader_end(fxi_reader *r);

/* Records what is wrong at a place of the text; false, so that `return fxi_reader_fail(…)` reads
 * well. */
bool fxi_reader_fail(fxi_reader *r, const char *at, const char *format, ...) FXI_PRINTF(3, 4);
bool fxi_reader_no_memory(fxi_reader *r, const char *at);
/* A constructor failed, and has recorded why: the place is added to its record. */
bool fxi_reader_passed_on(fxi_reader *r, const char *at);
/* The text from a place to the end of the next token, short, on one line: "3 => )". */
const char *fxi_reader_got(fxi_reader *r, const char *from, char dst[FXI_EXCERPT_BYTES]);

/* The next character after blanks and comments, 0 at the end. */
char fxi_reader_peek(fxi_reader *r);
bool fxi_reader_take(fxi_reader *r, char c);
/* In a list that `close` ends: true when an item follows. ; is a comma too, and may stand first. */
bool fxi_reader_next_item(fxi_reader *r, bool first, char close);

/* A name, perhaps after modules: relu of Flux.relu, mse of Flux.Losses.mse. */
bool fxi_reader_name(fxi_reader *r, fxi_span *out);
/* name = (but not => or ==): what it names comes next. */
bool fxi_reader_keyword(fxi_reader *r, fxi_span *out);
bool fxi_span_is(fxi_span s, const char *word);
/* Is the piece one of the words that blanks separate? None for NULL. */
bool fxi_span_one_of(fxi_span s, const char *words);
/* How much of it errors show: for %.*s. */
int fxi_span_width(fxi_span s);
/* ", word" at the end of a list of words. */
void fxi_add_word(char *list, size_t capacity, const char *word);

/* Julia's numbers: 1_000, 0.5, 1.0e-8, and 0.1f0 for a Float32, which stands for the number as
 * written: the library rounds to the parameters' type when it computes. */
typedef struct fxi_number {
    fxi_span span;
    bool integer;
    double value;
    int64_t whole; /* of an integer */
} fxi_number;
/* False without a record when there is no number; with one when it is too large. */
bool fxi_reader_number(fxi_reader *r, fxi_number *out);

#endif
