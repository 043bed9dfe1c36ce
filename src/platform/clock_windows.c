/* clock_windows.c: clocks of Windows; see clock.h. */
#include "clock.h"

#include <stdio.h>
#include <windows.h>

int64_t fxi_clock_nanoseconds(void)
{
    LARGE_INTEGER now, rate; /* the rate is fixed while the system runs */
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    const int64_t seconds = now.QuadPart / rate.QuadPart, rest = now.QuadPart % rate.QuadPart;
    return seconds * 1000000000 + rest * 1000000000 / rate.QuadPart;
}

double fxi_clock(void)
{
    return 1e-9 * (double)fxi_clock_nanoseconds();
}

/* Windows counts units of 100 ns since 1601. */
int64_t fxi_clock_since_1970(void)
{
    FILETIME t;
    GetSystemTimePreciseAsFileTime(&t);
    const int64_t units = ((int64_t)t.dwHighDateTime << 32) + t.dwLowDateTime;
    return (units - 116444736000000000) * 100;
}

void fxi_sleep_milliseconds(int n)
{
    Sleep((DWORD)n);
}

/* Windows sleeps for whole milliseconds; 0 lets other threads run. */
void fxi_sleep_microseconds(int n)
{
    Sleep((DWORD)(n / 1000));
}

void fxi_clock_utc(char *text, size_t size)
{
    SYSTEMTIME t;
    GetSystemTime(&t);
    snprintf(text, size, "%04d-%02d-%02dT%02d:%02d:%02dZ", t.wYear, t.wMonth, t.wDay, t.wHour,
             t.wMinute, t.wSecond);
}
