/* timeline.h: records when the process computes, communicates and waits, for users who want to find
 * out where time is lost. Internal.
 *
 * With FX_TIMELINE=FILE in the environment, the process writes events to FILE, in the format of
 * Chrome's trace viewer (an array in JSON), which https://ui.perfetto.dev also shows. One of
 * several processes that a launcher started writes to FILE.RANK; cflux launch --timeline joins
 * these files. Without the variable the functions cost a load and a comparison.
 */
#ifndef CFLUX_TIMELINE_H
#define CFLUX_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

/* Where the viewer draws an event. */
typedef enum fxi_row {
    FXI_ROW_COMMUNICATION, /* of the whole process: one operation runs at a time */
    FXI_ROW_THREAD         /* of the calling thread */
} fxi_row;

bool fxi_timeline_on(void);
int64_t fxi_timeline_now(void); /* nanoseconds; 0 if the timeline is off */
/* Writes an event that began at `begin` (fxi_timeline_now) and ends now. `kind`: "compute",
 * "communication" or "waiting". Does nothing if `begin` is 0. */
void fxi_timeline_event(fxi_row row, const char *kind, const char *name, int64_t begin);

#endif
