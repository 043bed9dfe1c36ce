/* system_memory.h: allocates memory from the system, and asks the system about memory. Internal. */
#ifndef CFLUX_SYSTEM_MEMORY_H
#define CFLUX_SYSTEM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocates from the C library; alignment 0: that of malloc. NULL if it fails. fxi_system_free:
 * `aligned` is true if the alignment was above 0. */
void *fxi_system_alloc(size_t alignment, size_t bytes);
void fxi_system_free(void *p, bool aligned);
/* Asks the system to use huge pages for this memory. Only a request. */
void fxi_system_huge_pages(void *at, size_t bytes);
/* Requests a huge page of 2 MiB for the memory at `at`, which is aligned to that, and writes to it.
 * Returns the nanoseconds of processor time of the write, which include the time in which the
 * system made the page; −1 if the system has no such pages. */
int64_t fxi_system_try_huge_page(void *at);
/* Makes the C library return its freed memory to the system. */
void fxi_system_memory_reclaim(void);

/* The memory that the process may use, in bytes: all, and the part that is available now; −1 if
 * unknown. The memory of the machine, on Linux at most the limits of the process's cgroups (of a
 * container, for example) and of its address space (RLIMIT_AS). */
void fxi_system_memory(int64_t *out_total, int64_t *out_available);
int64_t fxi_system_memory_total(void);
/* The bytes that the process can fill at most: the memory of the machine or of its cgroups, and the
 * space for swapping. −1 if unknown, or if the system refuses allocations that it cannot hold.
 * Otherwise *out_held, which may be NULL, is the number of bytes of the process that are in memory,
 * except pages of files; 0 if unknown. */
int64_t fxi_system_memory_most(int64_t *out_held);

size_t fxi_page_bytes(void);
/* Can this page of the process be read? Asks the system; does not touch the page. */
bool fxi_page_readable(uintptr_t address);

#endif
