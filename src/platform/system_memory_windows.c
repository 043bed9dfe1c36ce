/* system_memory_windows.c: memory on Windows; see system_memory.h. */
#include "system_memory.h"

#include <malloc.h>
#include <stdlib.h>
#include <windows.h>

void *fxi_system_alloc(size_t alignment, size_t bytes)
{
    return alignment == 0 ? malloc(bytes) : _aligned_malloc(bytes, alignment);
}

void fxi_system_free(void *p, bool aligned)
{
    if (aligned)
        _aligned_free(p);
    else
        free(p);
}

/* Large pages need a right that users do not have by default. */
void fxi_system_huge_pages(void *at, size_t bytes)
{
    (void)at, (void)bytes;
}

int64_t fxi_system_try_huge_page(void *at)
{
    (void)at;
    return -1;
}

void fxi_system_memory_reclaim(void)
{
    _heapmin();
}

/* An allocation that the system cannot hold fails. */
int64_t fxi_system_memory_most(int64_t *out_held)
{
    (void)out_held;
    return -1;
}

void fxi_system_memory(int64_t *out_total, int64_t *out_available)
{
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    const bool known = GlobalMemoryStatusEx(&memory);
    *out_total = known ? (int64_t)memory.ullTotalPhys : -1;
    *out_available = known ? (int64_t)memory.ullAvailPhys : -1;
}

int64_t fxi_system_memory_total(void)
{
    int64_t total, available;
    fxi_system_memory(&total, &available);
    return total;
}

size_t fxi_page_bytes(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}

bool fxi_page_readable(uintptr_t address)
{
    MEMORY_BASIC_INFORMATION page;
    return VirtualQuery((const void *)address, &page, sizeof page) == sizeof page &&
           page.State == MEM_COMMIT && !(page.Protect & (PAGE_NOACCESS | PAGE_GUARD));
}
