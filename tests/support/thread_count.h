/* thread_count.h: the number of threads of this process. Include it after cmocka.h. */
#ifndef CFLUX_TEST_THREAD_COUNT_H
#define CFLUX_TEST_THREAD_COUNT_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static inline int64_t threads_now(void)
{
    long n = -1;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "Threads: %ld", &n);
    if (f)
        fclose(f);
    return n;
}

/* A joined thread may still be listed for a moment. */
static inline void expect_threads(int64_t n)
{
    for (int i = 0; i < 3000 && threads_now() > n; i++) /* a loaded machine ends them late */
        usleep(10000);
    assert_true(threads_now() <= n);
}

#endif
