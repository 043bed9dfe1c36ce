/* failure.h: what went wrong, as one line on stderr and an exit status. */
#ifndef CFLUX_TOOL_FAILURE_H
#define CFLUX_TOOL_FAILURE_H

#include <cflux.h>

/* Exit statuses; 130 and 143 after SIGINT and SIGTERM. */
enum {
    EXIT_FINE = 0,
    EXIT_FAILED = 1, /* it went wrong while running: a write, a device, a loss of NaN */
    EXIT_BAD_INPUT =
        2 /* options, notation, columns, shapes, files that are not what they should be */
};

/* The command that messages begin with: "cflux train: …". Static storage. */
void failure_command(const char *name);

/* Prints "cflux train: text" and returns the status: return fail(EXIT_BAD_INPUT, "…", …); */
int fail(int status, const char *format, ...) FXI_PRINTF(2, 3);

/* The same with the library's record, which is cleared; `status` says whose fault it is. */
int fail_library(int status);

/* A record's message without the name of the function that failed. It lives as long as the record.
 */
const char *failure_sentence(const fx_error *e);

/* The same of a file that may be a table: what the library says of its option for the separator is
 * said of the command's own, or of that of `whose`: "cflux train ". */
int fail_table(int status, const char *whose);
/* The sentence that it prints, in `text` where it is not the record's. */
const char *table_sentence(const fx_error *e, const char *whose, char *text, size_t size);

/* Records that memory is out, as an error in the place of an object. */
void *memory_error(void);

/* Prints "cflux train: warning: text". */
void warn(const char *format, ...) FXI_PRINTF(1, 2);

/* Sends the library's messages through warn. */
void failure_take_messages(void);

/* Flushes stdout: `status`, or EXIT_FAILED when something could not be written there. */
int finish_output(int status);

#endif
