/* system_memory.h: memory as the system hands it out, and what it says of addresses. Internal. */
#ifndef CFLUX_SYSTEM_MEMORY_H
#define CFLUX_SYSTEM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory of the C library; alignment 0: what malloc gives. NULL without memory. `aligned` of the
 * free says whether the alignment was above 0. */
void *fxi_system_alloc(size_t alignment, size_t bytes);
void fxi_system_free(void *p, bool aligned);
/* Asks for large pages behind this memory. It is a request. */
void fxi_system_huge_pages(void *at, size_t bytes);
/* The C library returns what it keeps of freed memory. */
void fxi_system_memory_reclaim(void);

/* The machine's memory in bytes: all of it, and what a program could have now; −1 if unknown. */
void fxi_system_memory(int64_t *out_total, int64_t *out_available);

size_t fxi_page_bytes(void);
/* Can this page of the process be read? Asks the system and touches nothing. */
bool fxi_page_readable(uintptr_t address);

#endif
