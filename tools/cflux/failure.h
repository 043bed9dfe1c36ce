/* failure.h: reports a failure as one line on stderr and an exit status. */
#ifndef CFLUX_TOOL_FAILURE_H
#define CFLUX_TOOL_FAILURE_H

#include <cflux.h>

/* Exit statuses. SIGINT and SIGTERM give 130 and 143. */
enum {
    EXIT_FINE = 0,
    EXIT_FAILED = 1,   /* a failure while running: a write, a device, a loss of NaN */
    EXIT_BAD_INPUT = 2 /* bad input: options, notation, columns, shapes, malformed files */
};

/* The command name with which messages begin: "cflux train: …". Must have static storage. */
void failure_command(const char *name);

/* Prints "cflux train: text" and returns the status: return fail(EXIT_BAD_INPUT, "…", …); */
int fail(int status, const char *format, ...) FXI_PRINTF(2, 3);

/* Prints the library's recorded error and clears it; `status` says whether the input is at fault.
 */
int fail_library(int status);

/* The message of a record without the name of the function. Lives as long as the record. */
const char *failure_sentence(const fx_error *e);

/* The same for a file that may be a table. If the library's message names an option of
 * fx_read_table, such as .separator, the printed message names the option of cflux instead,
 * preceded by `whose`: "", or the command that has the option and a blank, "cflux train ". */
int fail_table(int status, const char *whose);
/* The sentence that fail_table prints; uses `text` if it differs from the record's. */
const char *table_sentence(const fx_error *e, const char *whose, char *text, size_t size);

/* The longest line of a failure. */
enum { FAILURE_TEXT = 4096 };

/* For several processes that run one command (members.h). */
/* Holds failures: the first one from now on is kept, and none is printed. */
void failure_hold(void);
/* The failure that is held; "" if there is none. */
const char *failure_held(void);
/* Ends the holding: the first prints the failure that is held, the second forgets it. */
void failure_print_held(void);
void failure_discard(void);
/* true: prints no failures and no warnings, until it is called with false. */
void failure_silence(bool on);

/* Records an out-of-memory error and returns an error object. */
void *memory_error(void);

/* Prints "cflux train: warning: text". */
void warn(const char *format, ...) FXI_PRINTF(1, 2);

/* Prints the library's messages through warn. */
void failure_take_messages(void);

/* Flushes a stream. Returns false if this or an earlier write failed; errno then gives the reason.
 * The content of a stream that failed is undefined. */
bool flush_stream(FILE *to);

/* Flushes stdout. Returns `status`, or EXIT_FAILED if writing failed. */
int finish_output(int status);

#endif
