/* clock.h: the clocks of the system. Internal. */
#ifndef CFLUX_CLOCK_H
#define CFLUX_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A clock that never goes back and starts at an arbitrary moment: in seconds, and in nanoseconds.
 */
double fxi_clock(void);
int64_t fxi_clock_nanoseconds(void);

/* Nanoseconds since 1970. The system may set this clock forward or back. */
int64_t fxi_clock_since_1970(void);

void fxi_sleep_milliseconds(int n);
void fxi_sleep_microseconds(int n);

/* The time of day in ISO 8601, such as 2024-02-29T23:59:59Z; "" if the system has none. */
void fxi_clock_utc(char *text, size_t size);

#endif
