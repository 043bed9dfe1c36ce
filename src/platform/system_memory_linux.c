/* system_memory_linux.c: the memory of a machine with Linux; see system_memory.h. */
#include "system_memory.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

int64_t fxi_system_memory_total(void)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    return pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

void fxi_system_memory(int64_t *out_total, int64_t *out_available)
{
    char text[256] = "";
    *out_total = fxi_system_memory_total();
    *out_available = -1;
    FILE *f = fopen("/proc/meminfo", "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    const char *at = strstr(text, "MemAvailable:");
    if (at)
        *out_available = 1024 * strtoll(at + strlen("MemAvailable:"), NULL, 10);
    if (f)
        fclose(f);
}

/* Asks the kernel to copy a byte of the page, because a mapped page may not be readable: guard
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
