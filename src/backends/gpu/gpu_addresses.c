/* gpu_addresses.c: a table of the buffers of a backend whose interface has buffer objects and no
 * addresses; see gpu_addresses.h.
 *
 * An address is a number: the upper 24 bits are the number of an entry in the table, from 1 on, so
 * that no address is NULL; the lower 40 are the byte in the entry's buffer. So the buffer of an
 * address is found by reading one entry, without a lock. Host memory may have the same address, so
 * an address is used only together with its device. Entries are allocated in blocks that are never
 * moved or freed. An entry is written before its address is returned to cflux, and again only after
 * it has been freed.
 */
#include "gpu_addresses.h"
#include "thread.h"

#include <string.h>

_Static_assert(sizeof(void *) == 8, "addresses have 64 bits");

/* 40 bits are 1 TiB, more than a buffer can have; the table's 2²³ entries fit in the other 24 bits.
 */
enum { OFFSET_BITS = 40, BLOCK_BITS = 12, BLOCK = 1 << BLOCK_BITS, BLOCKS = 1 << 11 };
_Static_assert(UINT64_C(1) << OFFSET_BITS == FXI_GPU_ADDRESS_BYTES, "the size of a buffer");

typedef struct entry {
    void *object;  /* atomic; NULL: not in use */
    uint32_t next; /* the next free entry's number; 0: none */
} entry;

static struct {
    fxi_mutex lock;        /* held to allocate or free an entry */
    entry *blocks[BLOCKS]; /* atomic */
    uint32_t used, free;   /* entries used so far; number of the latest freed one, or 0 */
} table = {.lock = FXI_MUTEX_INIT};

static entry *entry_of(uint64_t number)
{
    /* A number of 0 or beyond the table comes from an address that is not ours. */
    const uint64_t at = number - 1;
    entry *block = at >> BLOCK_BITS < BLOCKS
                       ? __atomic_load_n(&table.blocks[at >> BLOCK_BITS], __ATOMIC_ACQUIRE)
                       : NULL;
    return block ? &block[at & (BLOCK - 1)] : NULL;
}

void *fxi_gpu_address_find(const void *address, size_t *out_offset)
{
    const uint64_t a = (uint64_t)(uintptr_t)address;
    const entry *s = entry_of(a >> OFFSET_BITS);
    /* The lower bits are the byte in the buffer, so cflux can add offsets to an address. */
    *out_offset = a & (FXI_GPU_ADDRESS_BYTES - 1);
    return s ? __atomic_load_n(&s->object, __ATOMIC_ACQUIRE) : NULL;
}

static bool add_block(const fx_host *host)
{
    const uint32_t block = table.used >> BLOCK_BITS;
    entry *fresh = block < BLOCKS ? host->alloc(BLOCK * sizeof *fresh) : NULL;
    if (!fresh)
        return false;
    /* The block is complete before its address is published, because readers take no lock. */
    memset(fresh, 0, BLOCK * sizeof *fresh);
    __atomic_store_n(&table.blocks[block], fresh, __ATOMIC_RELEASE);
    return true;
}

void *fxi_gpu_address_new(const fx_host *host, void *object)
{
    fxi_mutex_lock(&table.lock);
    uint32_t number = table.free;
    /* Freed entries first: the table then grows only with the buffers that exist at once. */
    if (number)
        table.free = entry_of(number)->next;
    else if ((table.used & (BLOCK - 1)) != 0 || add_block(host))
        number = ++table.used;
    if (number)
        __atomic_store_n(&entry_of(number)->object, object, __ATOMIC_RELEASE);
    fxi_mutex_unlock(&table.lock);
    return (void *)(uintptr_t)((uint64_t)number << OFFSET_BITS);
}

void *fxi_gpu_address_end(const void *address)
{
    const uint32_t number = (uint32_t)((uint64_t)(uintptr_t)address >> OFFSET_BITS);
    entry *s = entry_of(number);
    if (!s)
        return NULL;
    fxi_mutex_lock(&table.lock);
    /* A second free of the same address finds NULL and does nothing. */
    void *object = __atomic_exchange_n(&s->object, NULL, __ATOMIC_ACQ_REL);
    if (object) {
        s->next = table.free;
        table.free = number;
    }
    fxi_mutex_unlock(&table.lock);
    return object;
}
