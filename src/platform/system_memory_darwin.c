/* system_memory_darwin.c: the memory of a Mac; see system_memory.h. */
#include "system_memory.h"

#include <mach/mach.h>
#include <malloc/malloc.h>
#include <sys/sysctl.h>

/* macOS has no such request for memory of the C library. */
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
    malloc_zone_pressure_relief(NULL, 0);
}

int64_t fxi_system_memory_total(void)
{
    int64_t bytes = 0;
    size_t size = sizeof bytes;
    return sysctlbyname("hw.memsize", &bytes, &size, NULL, 0) == 0 ? bytes : -1;
}

/* Unknown: macOS makes swap files as it needs them. */
int64_t fxi_system_memory_most(int64_t *out_held)
{
    (void)out_held;
    return -1;
}

/* Available: pages that are free, or hold only copies of files (inactive pages may belong to other
 * programs, so they do not count). */
void fxi_system_memory(int64_t *out_total, int64_t *out_available)
{
    vm_statistics64_data_t pages;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    const mach_port_t host = mach_host_self();
    *out_total = fxi_system_memory_total();
    *out_available = -1;
    if (host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&pages, &n) == KERN_SUCCESS)
        *out_available = ((int64_t)pages.free_count + (int64_t)pages.external_page_count) *
                         (int64_t)fxi_page_bytes();
    mach_port_deallocate(mach_task_self(), host);
}

/* Asks the system to copy a byte of the page. */
bool fxi_page_readable(uintptr_t address)
{
    unsigned char byte;
    vm_size_t n = 0;
    return vm_read_overwrite(mach_task_self(), address, 1, (vm_address_t)&byte, &n) == KERN_SUCCESS;
}
