/* clock_posix.c: clocks on POSIX systems; see clock.h. */
#include "clock.h"

#include <time.h>

int64_t fxi_clock_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t fxi_clock_since_1970(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double fxi_clock(void)
{
    return 1e-9 * (double)fxi_clock_nanoseconds();
}

void fxi_sleep_milliseconds(int n)
{
    const struct timespec t = {.tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

void fxi_sleep_microseconds(int n)
{
    const struct timespec t = {.tv_sec = n / 1000000, .tv_nsec = n % 1000000 * 1000L};
    nanosleep(&t, NULL);
}

void fxi_clock_utc(char *text, size_t size)
{
    const time_t now = time(NULL);
    struct tm utc;
    *text = 0;
    if (!gmtime_r(&now, &utc) || !strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &utc))
        *text = 0;
}
