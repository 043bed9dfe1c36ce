/* cores_linux.c: counts the cores of a process on Linux; see cores.h. */
#include "cgroup.h"
#include "cores.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
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

static int fewer(int a, int b)
{
    return b > 0 && (a == 0 || b < a) ? b : a;
}

static void count_quota(const char *folder, void *user)
{
    char line[64];
    int *cores = user;
    fxi_cgroup_line(folder, "cpu.max", line, sizeof line);
    *cores = fewer(*cores, fxi_cgroup_cores(line));
}

/* The least quota of the process's cgroup (version 2) and of all cgroups above it. */
static int unified_cores(void)
{
    int cores = 0;
    fxi_cgroup_visit("", "", count_quota, &cores);
    return cores;
}

static int legacy_cores(void)
{
    char quota[64], period[64], both[140];
    fxi_cgroup_line("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota, sizeof quota);
    fxi_cgroup_line("/sys/fs/cgroup/cpu", "cpu.cfs_period_us", period, sizeof period);
    snprintf(both, sizeof both, "%s %s", quota, period);
    return fxi_cgroup_cores(both);
}

int fxi_system_cores(void)
{
    const int n = fewer(fewer(affinity_cores(), unified_cores()), legacy_cores());
    return n < 1 ? 1 : n;
}
