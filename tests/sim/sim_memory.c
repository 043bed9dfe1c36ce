/* sim_memory.c: memory of simulated devices. A device's addresses are accessible only while its
 * kernels run: an access by a kernel of another device, or by the host, faults. New memory is
 * filled with NaN. Freed memory is filled with another pattern and reused as late as possible.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 512, GAP = 512, FRESH = 0xff, FREED = 0xdd };

bool sim_memory_open(sim_device *d, size_t capacity)
{
    const int file = memfd_create("simulated device", 0);
    if (file < 0 || ftruncate(file, (off_t)capacity) != 0)
        return false;
    d->capacity = capacity;
    d->addresses = mmap(NULL, capacity, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    d->bytes = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    return d->addresses != MAP_FAILED && d->bytes != MAP_FAILED;
}

/* Finds the first gap from `from` on that is large enough. Returns the link at which the new block
 * is inserted. */
static sim_block **gap(sim_device *d, size_t from, size_t bytes, size_t *out_at)
{
    sim_block **link = &d->blocks;
    size_t at = 0;
    for (; *link; link = &(*link)->next) {
        at = at < from ? from : at;
        if ((*link)->at >= at + bytes)
            break;
        at = (*link)->at + (*link)->whole;
    }
    at = at < from ? from : at;
    *out_at = at;
    return at + bytes <= d->capacity ? link : NULL;
}

int sim_memory_alloc(sim_device *d, size_t bytes, void **out)
{
    const size_t whole = (bytes + GAP + ALIGN - 1) / ALIGN * ALIGN;
    size_t at = 0;
    if (bytes == 0)
        return SIM_INVALID_VALUE;
    if (bytes > d->capacity)
        return SIM_OUT_OF_MEMORY;
    sim_block **link = gap(d, d->next, whole, &at);
    if (!link)
        link = gap(d, 0, whole, &at);
    sim_block *b = link ? malloc(sizeof *b) : NULL;
    if (!b)
        return SIM_OUT_OF_MEMORY;
    *b = (sim_block){.next = *link, .at = at, .bytes = bytes, .whole = whole};
    *link = b;
    d->next = at + whole;
    d->high = d->next > d->high ? d->next : d->high;
    d->used += whole;
    memset(d->bytes + at, FRESH, bytes);
    memset(d->bytes + at + bytes, FREED, whole - bytes);
    *out = d->addresses + at;
    return SIM_OK;
}

/* Reports a kernel that wrote beyond the end of a block: it changed the gap. */
static void check_gap(const sim_device *d, const sim_block *b)
{
    for (size_t k = b->at + b->bytes; k < b->at + b->whole; k++)
        if ((unsigned char)d->bytes[k] != FREED) {
            sim_say("byte %zu after memory of %zu bytes of device %d was overwritten",
                    k - b->at - b->bytes, b->bytes, d->id);
            return;
        }
}

int sim_memory_free(sim_device *d, const void *address)
{
    const size_t at = (size_t)((const char *)address - d->addresses);
    sim_block **link = &d->blocks;
    while (*link && (*link)->at != at)
        link = &(*link)->next;
    sim_block *b = *link;
    if (!b) {
        sim_say("%p is not the address of memory of device %d, or was freed before", address,
                d->id);
        return SIM_INVALID_VALUE;
    }
    if (sim_is_used(d, address, b->bytes))
        sim_say("memory of device %d is freed while queued work uses it", d->id);
    check_gap(d, b);
    *link = b->next;
    d->used -= b->whole;
    memset(d->bytes + at, FREED, b->whole);
    free(b);
    return SIM_OK;
}

bool sim_memory_has(const sim_device *d, const void *address, size_t bytes)
{
    const size_t at = (size_t)((const char *)address - d->addresses);
    const sim_block *b = d->blocks;
    if ((const char *)address < d->addresses || at >= d->capacity)
        return false;
    while (b && b->at + b->whole <= at)
        b = b->next;
    return b && b->at <= at && at + bytes <= b->at + b->bytes;
}

char *sim_memory_at(sim_device *d, const void *address, size_t bytes, const char *what)
{
    if (sim_memory_has(d, address, bytes))
        return d->bytes + ((const char *)address - d->addresses);
    sim_say("%s: %zu bytes at %p are not memory of device %d, or were freed", what, bytes, address,
            d->id);
    return NULL;
}

void sim_memory_show(sim_device *d, bool shown)
{
    enum { PAGE = 1 << 16 };
    const size_t used = (d->high + PAGE - 1) / PAGE * PAGE;
    if (used > 0)
        mprotect(d->addresses, used < d->capacity ? used : d->capacity,
                 shown ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* ---- pinned memory of the host --------------------------------------------------------------- */

typedef struct pinned {
    struct pinned *next;
    size_t bytes;
    char memory[];
} pinned;
static pinned *all;

bool sim_pinned_alloc(size_t bytes, void **out)
{
    pinned *p = malloc(sizeof *p + bytes);
    if (!p)
        return false;
    *p = (pinned){.next = all, .bytes = bytes};
    all = p;
    *out = p->memory;
    return true;
}

bool sim_pinned_free(const void *address)
{
    pinned **link = &all;
    while (*link && (*link)->memory != address)
        link = &(*link)->next;
    pinned *p = *link;
    if (!p)
        return false;
    *link = p->next;
    free(p);
    return true;
}

bool sim_is_pinned(const void *address)
{
    const char *a = address;
    for (const pinned *p = all; p; p = p->next)
        if (a >= p->memory && a < p->memory + p->bytes)
            return true;
    return false;
}

int sim_pinned_count(void)
{
    int n = 0;
    for (const pinned *p = all; p; p = p->next)
        n++;
    return n;
}
