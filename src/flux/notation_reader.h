/* notation_reader.h: reads characters, names and numbers of a text in Julia's notation. Internal.
 *
 * The first failure is recorded with its line and column (in characters, from 1), and later ones
 * are ignored. Then fxi_reader_next_item and fxi_reader_end return false; callers of the other
 * functions stop. Apart from blanks and comments, a function consumes text only if it returns true;
 * fxi_reader_next_item also consumes the character that ends the list.
 */
#ifndef CFLUX_NOTATION_READER_H
#define CFLUX_NOTATION_READER_H

#include <cflux/base.h>

enum { FXI_EXCERPT = 24, FXI_EXCERPT_BYTES = 4 * FXI_EXCERPT + 8, FXI_NAME_SHOWN = 64 };

typedef struct fxi_reader {
    const char *what, *text, *at;
    fx_status status;   /* of the first failure */
    bool record_before; /* an error was recorded before the reading began; it must stay */
    int depth, layers;
    int64_t parameters;
    char symbol[FXI_NAME_SHOWN]; /* the latest symbol, which a constructor copies */
    void *input; /* of the layer that is read, for sizes that are left open; NULL: unknown */
} fxi_reader;

/* A piece of the text. */
typedef struct fxi_span {
    const char *from, *to;
} fxi_span;

/* Begins to read `what`, a name for messages; false (recorded) if `text` is NULL. */
bool fxi_reader_begin(fxi_reader *r, const char *what, const char *text);
/* True if nothing failed and only blanks and comments are left (otherwise recorded). */
bool fxi_reader_end(fxi_reader *r);

/* Records a failure at a position of the text. Returns false, for use as `return
 * fxi_reader_fail(…)`. */
bool fxi_reader_fail(fxi_reader *r, const char *at, const char *format, ...) FXI_PRINTF(3, 4);
bool fxi_reader_no_memory(fxi_reader *r, const char *at);
/* Adds the position to the record of a constructor that failed, or with record_before only sets the
 * status. Returns false. */
bool fxi_reader_passed_on(fxi_reader *r, const char *at);
/* The text from a position to the end of the next token, shortened and on one line: "3 => )". */
const char *fxi_reader_got(fxi_reader *r, const char *from, char dst[FXI_EXCERPT_BYTES]);

/* The next character after blanks and comments, 0 at the end. Does not consume it. */
char fxi_reader_peek(fxi_reader *r);
bool fxi_reader_take(fxi_reader *r, char c);
bool fxi_reader_arrow(fxi_reader *r); /* -> */
/* In a list that ends with `close`: true if another item follows. A semicolon counts as a comma and
 * may come first. */
bool fxi_reader_next_item(fxi_reader *r, bool first, char close);

/* Reads a name, with or without modules: relu of Flux.relu, mse of Flux.Losses.mse. */
bool fxi_reader_name(fxi_reader *r, fxi_span *out);
/* Reads "name =" (but not => or ==); the keyword's value follows. */
bool fxi_reader_keyword(fxi_reader *r, fxi_span *out);
bool fxi_span_is(fxi_span s, const char *word);
/* True if the piece is one of the blank-separated words. False if `words` is NULL. */
bool fxi_span_one_of(fxi_span s, const char *words);
/* The number of bytes that errors show, for %.*s. */
int fxi_span_width(fxi_span s);
/* Appends ", word" to a list of words; ", …" once if it does not fit. */
void fxi_add_word(char *list, size_t capacity, const char *word);

/* Julia's numbers: 1_000, 0.5, 1.0e-8, and 0.1f0 for a Float32. The value of 0.1f0 is kept as
 * written; the library rounds it to the type of the parameters when it computes. */
typedef struct fxi_number {
    fxi_span span;
    bool integer, narrow; /* narrow: a Float32 */
    double value;
    int64_t whole; /* of an integer */
} fxi_number;
/* False without a record if there is no number; false with a record if its type cannot hold it, as
 * in 1e999 and 1f39. */
bool fxi_reader_number(fxi_reader *r, fxi_number *out);

#endif
