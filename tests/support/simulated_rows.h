/* simulated_rows.h: tests that run their own program in simulated environments (tests/sim): each
 * row has what the driver and the libraries are to do, an act of the child, and what it must print.
 */
#ifndef CFLUX_TEST_SIMULATED_ROWS_H
#define CFLUX_TEST_SIMULATED_ROWS_H

#include <stddef.h>

typedef struct simulated_row {
    const char *environment; /* "SIM_DEFER=1 FX_CUDNN_LIBRARY=off", "" for none */
    const char *act;         /* the child's argument */
    const char *says[5];     /* its output contains each of them, and none that begins with '!' */
} simulated_row;

/* The output of the latest child. */
extern char simulated_heard[32768];

/* Runs this program as a child (own_child.h) with the simulated driver, this environment, and
 * `always` before it: settings of all rows, or "". A child that fails fails the test. */
void simulated_run(const char *always, const char *environment, const char *act);
/* Fails the test unless the child's output contains the text, or if it contains what follows a '!'.
 * NULL: nothing is expected. */
void simulated_expect(const char *environment, const char *text);
/* Runs all rows. A message of the simulator about a misuse fails the test too. */
void simulated_rows(const char *always, const simulated_row *rows, size_t n);

#endif
