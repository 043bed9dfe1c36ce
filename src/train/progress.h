/* progress.h: what fx_train shows while it runs. Internal to src/train.
 *
 * On a terminal one line is redrawn at most ten times a second; anywhere else there are plain
 * lines, so that logs stay readable. An epoch has a line of its own, but after the first ones there
 * are at most ten lines a second: nobody reads more, and a line takes as long as a small step. The
 * last epoch always has one. Nothing is written but to the given stream.
 */
#ifndef CFLUX_PROGRESS_H
#define CFLUX_PROGRESS_H

#include <cflux/train.h>

typedef struct fxi_meter {
    FILE *out; /* NULL: silent */
    bool terminal;
    bool line_open;    /* the bar stands on the current line */
    double last_drawn; /* seconds since the start of training */
    double epoch_began;
    double last_line;     /* when an epoch had one */
    int lines;            /* how many had */
    int64_t steps_before; /* of a checkpoint: this run did not take them */
} fxi_meter;

void fxi_meter_open(fxi_meter *meter, FILE *out);
void fxi_meter_batch(fxi_meter *meter, const fx_progress *p);
/* Is it time for the line of an epoch? */
bool fxi_meter_due(const fxi_meter *meter, const fx_progress *p);
/* Writes it; `note` stands at its end. */
void fxi_meter_epoch(fxi_meter *meter, const fx_progress *p, const char *note);
/* Leaves the bar's line, if one is open. */
void fxi_meter_close(fxi_meter *meter);

#endif
