/* schedules.h: makes schedules by name, for the notation. Internal. */
#ifndef CFLUX_SCHEDULES_H
#define CFLUX_SCHEDULES_H

#include <cflux/schedule.h>

/* Makes the schedule with this name in ParameterSchedulers.jl from n numbers. NULL (not recorded)
 * in two cases: no schedule with this name is made from numbers (*out_numbers is −1), or it takes
 * another count of numbers (*out_numbers is the smallest count that it takes). An error object if
 * the numbers are refused. */
fx_schedule *fxi_schedule_named(const char *name, int n, const double *v, int *out_numbers);
fx_schedule *fxi_schedule_error(void);
/* The position of the number that a schedule's keyword names; −1 if it has no such keyword. A
 * number that is NaN gets its default. */
int fxi_schedule_keyword(const char *name, const char *keyword);

#endif
