/* system_memory_posix.c: allocates memory on POSIX systems; see system_memory.h. */
#include "system_memory.h"

#include <stdlib.h>
#include <unistd.h>

void *fxi_system_alloc(size_t alignment, size_t bytes)
{
    void *p = NULL;
    if (alignment == 0)
        return malloc(bytes);
    return posix_memalign(&p, alignment, bytes) == 0 ? p : NULL;
}

void fxi_system_free(void *p, bool aligned)
{
    (void)aligned;
    free(p);
}

size_t fxi_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}
