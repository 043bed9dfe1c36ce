/* cores_linux.c: counts the cores of a process on Linux; see cores.h. */
#include "cores.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int affinity_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int fxi_cgroup_cores(const char *text)
{
    long long quota, period;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return 0;
    const long long cores = quota / period + (quota % period != 0);
    return cores < INT_MAX ? (int)cores : INT_MAX;
}

/* Reads the first line of a file; "" if it cannot be read. */
static void read_line(const char *path, char *text, int size)
{
    text[0] = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    if (!fgets(text, size, f))
        text[0] = 0;
    text[strcspn(text, "\n")] = 0;
    fclose(f);
}

static int fewer(int a, int b)
{
    return b > 0 && (a == 0 || b < a) ? b : a;
}

/* The least quota of the process's cgroup (version 2) and of all cgroups above it. Inside a
 * container the root is the container's own. */
static int unified_cores(void)
{
    char line[512], path[600], group[512] = "";
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "0::", 3) == 0)
            snprintf(group, sizeof group, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    if (f)
        fclose(f);
    for (int cores = 0;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        read_line(path, line, sizeof line);
        cores = fewer(cores, fxi_cgroup_cores(line));
        char *end = strrchr(group, '/');
        if (!end)
            return cores;
        *end = 0;
    }
}

static int legacy_cores(void)
{
    char quota[64], period[64], both[140];
    read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota);
    read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period);
    snprintf(both, sizeof both, "%s %s", quota, period);
    return fxi_cgroup_cores(both);
}

int fxi_system_cores(void)
{
    const int n = fewer(fewer(affinity_cores(), unified_cores()), legacy_cores());
    return n < 1 ? 1 : n;
}
