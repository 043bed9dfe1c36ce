/* progress.h: the progress output of fx_train. Internal to src/train.
 *
 * On a terminal, one line is redrawn at most ten times a second. Other streams get plain lines, so
 * that logs stay readable: one per epoch, but after the first few at most ten a second, because a
 * line takes as long as a small training step. The final epoch always has a line. Nothing is
 * written to a stream other than `out`.
 */
#ifndef CFLUX_PROGRESS_H
#define CFLUX_PROGRESS_H

#include <cflux/train.h>

typedef struct fxi_meter {
    FILE *out; /* NULL: no output */
    bool terminal;
    bool line_open;  /* the bar is on the current line */
    double drawn_at; /* seconds since the start of training */
    double epoch_began;
    double epoch_line_at; /* seconds at the latest line of an epoch */
    int lines;            /* number of lines of epochs */
    int64_t steps_before; /* training steps taken before the checkpoint, not in this run */
} fxi_meter;

void fxi_meter_open(fxi_meter *meter, FILE *out);
void fxi_meter_batch(fxi_meter *meter, const fx_progress *p);
/* True if the epoch should get a line now. */
bool fxi_meter_due(const fxi_meter *meter, const fx_progress *p);
/* Writes the line of an epoch with `note` at its end. */
void fxi_meter_epoch(fxi_meter *meter, const fx_progress *p, const char *note);
/* Ends the bar's line, if one is open. */
void fxi_meter_close(fxi_meter *meter);

#endif
