/* system_memory_linux.c: the memory of a machine with Linux; see system_memory.h. */
#include "cgroup.h"
#include "system_memory.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

void fxi_system_huge_pages(void *at, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

/* The thread's own time: a wait for a core says nothing about the page. */
static int64_t thread_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t fxi_system_try_huge_page(void *at)
{
#ifdef MADV_HUGEPAGE
    if (madvise(at, (size_t)2 << 20, MADV_HUGEPAGE) == 0) {
        const int64_t start = thread_nanoseconds();
        *(volatile char *)at = 0;
        return thread_nanoseconds() - start;
    }
#endif
    (void)at;
    return -1;
}

void fxi_system_memory_reclaim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* ---- figures and pages ----------------------------------------------------------------------- */

/* The smaller one of two numbers of bytes; −1 means unknown. */
static int64_t smaller(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* The limit of the process's address space; −1 if there is none. */
static int64_t address_space(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > INT64_MAX
               ? -1
               : (int64_t)limit.rlim_cur;
}

/* The bytes of the process: its address space, what is in memory, and the part of this that belongs
 * to files. False if they are unknown. */
static bool own_bytes(int64_t *out_space, int64_t *out_resident, int64_t *out_files)
{
    long long pages[3];
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return false;
    const bool read = fscanf(f, "%lld %lld %lld", &pages[0], &pages[1], &pages[2]) == 3;
    fclose(f);
    const int64_t page = (int64_t)fxi_page_bytes();
    if (read)
        *out_space = pages[0] * page, *out_resident = pages[1] * page, *out_files = pages[2] * page;
    return read;
}

/* What is left of the limit of the address space; −1 if there is no limit, or if it is unknown. */
static int64_t address_space_left(void)
{
    const int64_t limit = address_space();
    int64_t used, resident, files;
    if (limit < 0 || !own_bytes(&used, &resident, &files))
        return -1;
    return used < limit ? limit - used : 0;
}

/* group: the limit of the process's cgroups; −1 if there is none. */
static int64_t total_of(int64_t group)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    const int64_t machine = pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
    return smaller(smaller(machine, group), address_space());
}

/* Every new thread calls this function, and reading the files of the cgroups takes several times as
 * long as the rest of a thread's first evaluation. So these files are read once. */
int64_t fxi_system_memory_total(void)
{
    enum { UNREAD = -2 };
    static int64_t group = UNREAD;
    int64_t limit = __atomic_load_n(&group, __ATOMIC_RELAXED);
    if (limit == UNREAD) {
        fxi_cgroup_memory("", &limit, NULL);
        __atomic_store_n(&group, limit, __ATOMIC_RELAXED);
    }
    return total_of(limit);
}

int64_t fxi_system_memory_most(int64_t *out_held)
{
    struct sysinfo machine;
    int64_t group, space, resident, files;
    if (sysinfo(&machine) != 0)
        return -1;
    if (out_held)
        *out_held = own_bytes(&space, &resident, &files) ? resident - files : 0;
    const int64_t unit = machine.mem_unit;
    fxi_cgroup_memory("", &group, NULL);
    return smaller((int64_t)machine.totalram * unit, group) + (int64_t)machine.totalswap * unit;
}

void fxi_system_memory(int64_t *out_total, int64_t *out_available)
{
    char text[256] = "";
    int64_t group, group_left;
    fxi_cgroup_memory("", &group, &group_left);
    *out_total = total_of(group);
    *out_available = -1;
    FILE *f = fopen("/proc/meminfo", "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    const char *at = strstr(text, "MemAvailable:");
    if (at)
        *out_available = 1024 * strtoll(at + strlen("MemAvailable:"), NULL, 10);
    if (f)
        fclose(f);
    *out_available = smaller(smaller(*out_available, group_left), address_space_left());
}

/* Asks the system to copy a byte of the page, because a mapped page may not be readable: guard
 * pages, and the shadow memory of the address sanitizer. (handle.c asks about any pointer-sized
 * bytes, also those of a text: a text of five characters looks like an address in that shadow
 * memory.) If the call is forbidden, a mapped page counts as readable. */
bool fxi_page_readable(uintptr_t address)
{
    unsigned char byte;
    struct iovec to = {&byte, 1}, from = {(void *)address, 1};
    const ssize_t copied = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (copied == 1 || errno == EFAULT)
        return copied == 1;
    return mincore((void *)address, fxi_page_bytes(), &byte) == 0;
}
