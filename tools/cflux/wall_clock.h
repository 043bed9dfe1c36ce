/* wall_clock.h: the time that has passed. */
#ifndef CFLUX_TOOL_WALL_CLOCK_H
#define CFLUX_TOOL_WALL_CLOCK_H

/* Seconds since some moment that stays the same while the program runs. */
double seconds_now(void);

#endif
