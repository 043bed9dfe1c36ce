/* check_memory.c: the allocations of the checking backend.
 *
 * Each is memory of the inner backend with a guard before and after it. Guards, fresh memory and
 * released memory are filled with bytes that are NaN in every float type, so that a result computed
 * from them is NaN. Guards have a pattern of their own. Released memory is kept for a
 * while, to find late writes; the oldest is freed first, and must then be unchanged. If host and
 * device share memory, it is accessed directly, otherwise with `read` and `write` in pieces.
 */
#include "backends.h"
#include "check.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

/* PIECE is a multiple of 8, the period of a guard's pattern. At most HELD_MOST bytes of released
 * memory are held. A small allocation counts as LEAST bytes, which bounds their number too. */
enum { GUARD = 256, PIECE = 4096, HELD_MOST = 64 << 20, LEAST = 16 << 10 };

struct fxi_check_block {
    char *base;   /* as the inner backend returned it */
    size_t bytes; /* as requested; one guard before them, one after */
    int device;   /* id of its device */
    uint32_t key; /* part of its guards' pattern */
    bool released;
    uint64_t when;          /* number of steps that had run when it was released */
    const char *after;      /* the operation of the last of these steps */
    fxi_check_block *newer; /* the allocation released after it */
};

static fxi_span body(const fxi_check_block *b)
{
    const uintptr_t low = (uintptr_t)b->base + GUARD;
    return (fxi_span){low, low + b->bytes};
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The byte of a pattern at an offset from the beginning of an allocation, guard included. A guard
 * is NaN in every float type: its 16-bit units are 0x7FC0 or more, every fourth 0x7FF8 or more.
 * Allocations that follow each other have different guards, because a kernel may copy bytes from
 * after its input to after its output, and equal guards would hide that. */
static uint8_t byte_of(const fxi_check_block *b, fxi_check_fill fill, size_t offset)
{
    if (fill != FXI_CHECK_GUARD)
        return fill == FXI_CHECK_POISON ? 0xFF : 0;
    if (offset & 1)
        return 0x7F;
    return (uint8_t)((offset & 7) == 6 ? 0xF8 | (b->key & 7) : 0xC0 | (b->key & 63));
}

/* The pattern of one piece, or of fewer bytes. */
static void pattern(const fxi_check_block *b, fxi_check_fill fill, size_t offset, size_t bytes,
                    uint8_t *to)
{
    for (size_t i = 0; i < bytes && i < PIECE; i++)
        to[i] = byte_of(b, fill, offset + i);
}

static size_t piece(size_t bytes)
{
    return bytes < PIECE ? bytes : PIECE;
}

/* Fills part of an allocation, counted from its base. */
static bool put(const fxi_checker *c, const fxi_check_block *b, size_t offset, size_t bytes,
                fxi_check_fill fill)
{
    fx_device *inner = c->devices[b->device];
    /* Only guards have a pattern of several bytes, which the host must write. */
    if (c->inner->fill && fill != FXI_CHECK_GUARD && bytes > 0)
        return c->inner->fill(inner, b->base + offset, byte_of(b, fill, 0), bytes) == FX_OK;
    uint8_t want[PIECE];
    pattern(b, fill, offset, bytes, want);
    for (size_t n; bytes > 0; offset += n, bytes -= n) {
        n = piece(bytes);
        if (!c->inner->write)
            memcpy(b->base + offset, want, n);
        else if (c->inner->write(inner, b->base + offset, want, n) != FX_OK)
            return false;
    }
    return true;
}

/* Bytes of an allocation for the host: their own address, or a copy. NULL if they cannot be read;
 * the inner backend has recorded the error. */
static const uint8_t *get(const fxi_checker *c, const fxi_check_block *b, size_t offset, size_t n,
                          uint8_t *copy)
{
    if (!c->inner->read)
        return (const uint8_t *)b->base + offset;
    const fx_status s = c->inner->read(c->devices[b->device], copy, b->base + offset, n);
    return s == FX_OK ? copy : NULL;
}

/* The offset from the base of the first byte that differs from its fill; −1 if none does, or if the
 * memory cannot be read, for which the inner backend has recorded an error. */
static int64_t changed(const fxi_checker *c, const fxi_check_block *b, size_t offset, size_t bytes,
                       fxi_check_fill fill)
{
    uint8_t want[PIECE], copy[PIECE];
    pattern(b, fill, offset, bytes, want);
    for (size_t n; bytes > 0; offset += n, bytes -= n) {
        n = piece(bytes);
        const uint8_t *have = get(c, b, offset, n, copy);
        if (!have)
            return -1;
        for (size_t i = 0; memcmp(have, want, n) != 0 && i < n; i++)
            if (have[i] != want[i])
                return (int64_t)(offset + i);
    }
    return -1;
}

/* ---- which allocation ------------------------------------------------------------------------ */

/* The first block of this device at or after an address, or of a later device. */
static int32_t position(const fxi_checker *c, int device, uintptr_t address)
{
    int32_t low = 0, high = c->nblocks;
    while (low < high) {
        const int32_t k = (low + high) / 2;
        const fxi_check_block *b = c->blocks[k];
        if (b->device < device || (b->device == device && (uintptr_t)b->base < address))
            low = k + 1;
        else
            high = k;
    }
    return low;
}

/* The last block, guards included, that a range of a device overlaps. */
static fxi_check_block *touched(const fxi_checker *c, int device, fxi_span range)
{
    const int32_t k = position(c, device, range.high) - 1;
    fxi_check_block *b = k >= 0 ? c->blocks[k] : NULL;
    return b && b->device == device && body(b).high + GUARD > range.low ? b : NULL;
}

static bool inside(const fxi_check_block *b, fxi_span range)
{
    return body(b).low <= range.low && range.high <= body(b).high;
}

static bool insert(fxi_checker *c, fxi_check_block *b)
{
    if (!fxi_grow(&c->blocks, &c->capacity, c->nblocks + 1, sizeof(void *)))
        return false;
    const int32_t k = position(c, b->device, (uintptr_t)b->base);
    memmove(c->blocks + k + 1, c->blocks + k, (size_t)(c->nblocks - k) * sizeof *c->blocks);
    c->blocks[k] = b;
    c->nblocks++;
    return true;
}

static void take_out(fxi_checker *c, const fxi_check_block *b)
{
    const int32_t k = position(c, b->device, (uintptr_t)b->base);
    c->nblocks--;
    memmove(c->blocks + k, c->blocks + k + 1, (size_t)(c->nblocks - k) * sizeof *c->blocks);
}

/* ---- sentences ------------------------------------------------------------------------------- */

/* "an allocation of 64 bytes that was freed 3 steps ago, after relu" */
static void describe(const fxi_checker *c, const fxi_check_block *b, char *text, size_t size)
{
    const int n = snprintf(text, size, "an allocation of %zu bytes", b->bytes);
    const unsigned long long ago = c->steps - b->when;
    if (b->released && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " that was freed %llu step%s ago, after %s", ago,
                 ago == 1 ? "" : "s", b->after);
}

fx_status fxi_check_report(const fx_device *device, const char *why)
{
    return *why ? fx_fail(FX_STATUS_INTERNAL, "check", "%s: %s", device->name, why) : FX_OK;
}

/* Was an allocation damaged? Its guards must be unchanged; the contents too if it is released. */
static bool damaged(const fxi_checker *c, const fxi_check_block *b, char *why)
{
    int64_t at = changed(c, b, 0, GUARD, FXI_CHECK_GUARD);
    if (at < 0)
        at = changed(c, b, GUARD + b->bytes, GUARD, FXI_CHECK_GUARD);
    if (at < 0 && b->released)
        at = changed(c, b, GUARD, b->bytes, FXI_CHECK_POISON);
    if (at < 0)
        return false;
    char what[120];
    describe(c, b, what, sizeof what);
    snprintf(why, FXI_CHECK_TEXT, "byte %lld of %s was written", (long long)at - GUARD, what);
    return true;
}

bool fxi_check_is_outside(fx_device *device, fxi_span range, char *why)
{
    fxi_checker *c = fxi_checker_of(device);
    char what[120], where[80] = "";
    fxi_mutex_lock(&c->lock);
    const fxi_check_block *b = touched(c, device->id, range);
    const bool fine = b && inside(b, range) && !b->released;
    for (int i = 0; !b && i < c->count; i++) {
        b = touched(c, i, range);
        if (b)
            snprintf(where, sizeof where, "in memory of %s:%d, ", c->table.head.name, i);
    }
    /* Memory of the program, or a literal, if the device uses host memory. */
    const bool foreign = !b && !c->inner->read;
    if (b && !fine) {
        describe(c, b, what, sizeof what);
        const long long low = (long long)(range.low - body(b).low);
        snprintf(why, FXI_CHECK_TEXT, "is %sat bytes %lld to %lld of %s", where, low,
                 low + (long long)(range.high - range.low) - 1, what);
    } else if (!b) {
        snprintf(why, FXI_CHECK_TEXT, "is outside the device's memory, at %p", (void *)range.low);
    }
    fxi_mutex_unlock(&c->lock);
    return !fine && !foreign;
}

bool fxi_check_is_damaged(fx_device *device, fxi_span range, char *why)
{
    fxi_checker *c = fxi_checker_of(device);
    fxi_mutex_lock(&c->lock);
    const fxi_check_block *b = touched(c, device->id, range);
    const bool bad = b && damaged(c, b, why);
    fxi_mutex_unlock(&c->lock);
    return bad;
}

void fxi_check_all(fx_device *device, char *why)
{
    fxi_checker *c = fxi_checker_of(device);
    *why = '\0';
    fxi_mutex_lock(&c->lock);
    for (int32_t i = 0; i < c->nblocks && !*why; i++)
        if (c->blocks[i]->device == device->id)
            damaged(c, c->blocks[i], why);
    fxi_mutex_unlock(&c->lock);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

bool fxi_check_fill_range(fx_device *device, fxi_span range, fxi_check_fill fill)
{
    fxi_checker *c = fxi_checker_of(device);
    fxi_mutex_lock(&c->lock);
    const fxi_check_block *b = touched(c, device->id, range);
    fxi_mutex_unlock(&c->lock);
    return b && put(c, b, range.low - (uintptr_t)b->base, range.high - range.low, fill);
}

int64_t fxi_check_changed(fx_device *device, fxi_span range, fxi_check_fill fill)
{
    fxi_checker *c = fxi_checker_of(device);
    fxi_mutex_lock(&c->lock);
    const fxi_check_block *b = touched(c, device->id, range);
    fxi_mutex_unlock(&c->lock);
    const size_t offset = b ? range.low - (uintptr_t)b->base : 0;
    const int64_t at = b ? changed(c, b, offset, range.high - range.low, fill) : -1;
    return at < 0 ? -1 : at - (int64_t)offset;
}

int64_t fxi_check_untouched(fx_device *device, fxi_span range, size_t size)
{
    fxi_checker *c = fxi_checker_of(device);
    fxi_mutex_lock(&c->lock);
    const fxi_check_block *b = touched(c, device->id, range);
    fxi_mutex_unlock(&c->lock);
    uint8_t copy[PIECE], want[16];
    memset(want, 0xFF, sizeof want);
    const size_t bytes = b ? range.high - range.low : 0;
    int64_t count = 0;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = piece(bytes - done);
        const uint8_t *have = get(c, b, range.low + done - (uintptr_t)b->base, n, copy);
        for (size_t i = 0; have && i + size <= n; i += size)
            count += memcmp(have + i, want, size) == 0;
    }
    return count;
}

/* ---- allocating and freeing ------------------------------------------------------------------ */

/* The bytes for which a released allocation counts. */
static size_t weight(const fxi_check_block *b)
{
    return b->bytes > LEAST ? b->bytes : LEAST;
}

/* Frees released memory, oldest first, until at most `most` bytes are held. */
static void free_oldest(fxi_checker *c, size_t most, char *why)
{
    while (c->oldest && c->held > most) {
        fxi_check_block *b = c->oldest;
        c->oldest = b->newer;
        c->held -= weight(b);
        if (!*why)
            damaged(c, b, why);
        take_out(c, b);
        c->inner->free(c->devices[b->device], b->base);
        fxi_free(b);
    }
    if (!c->oldest)
        c->newest = NULL;
}

static fxi_check_block *new_block(fxi_checker *c, int device, size_t bytes)
{
    fxi_check_block *b = fxi_calloc(1, sizeof *b);
    if (!b)
        return NULL;
    *b = (fxi_check_block){.bytes = bytes, .device = device, .key = c->key++};
    b->base = c->inner->alloc(c->devices[device], bytes + 2 * (size_t)GUARD);
    if (b->base && put(c, b, 0, GUARD, FXI_CHECK_GUARD) &&
        put(c, b, GUARD + bytes, GUARD, FXI_CHECK_GUARD) &&
        put(c, b, GUARD, bytes, FXI_CHECK_POISON) && insert(c, b))
        return b;
    if (b->base)
        c->inner->free(c->devices[device], b->base);
    fxi_free(b);
    return NULL;
}

void *fxi_check_alloc(fx_device *device, size_t bytes)
{
    fxi_checker *c = fxi_checker_of(device);
    char why[FXI_CHECK_TEXT] = "";
    if (bytes > SIZE_MAX - 2 * (size_t)GUARD)
        return NULL;
    fxi_mutex_lock(&c->lock);
    fxi_check_block *b = new_block(c, device->id, bytes);
    if (!b) {
        /* The device may be full because released memory is held. */
        free_oldest(c, 0, why);
        b = new_block(c, device->id, bytes);
    }
    fxi_mutex_unlock(&c->lock);
    fxi_check_report(device, why);
    return b ? b->base + GUARD : NULL;
}

/* Keeps the memory of a freed allocation, filled with poison, to find reads and writes of it. */
static void release(fxi_checker *c, fxi_check_block *b, char *why)
{
    damaged(c, b, why);
    put(c, b, 0, GUARD, FXI_CHECK_GUARD); /* damage is reported once only */
    put(c, b, GUARD + b->bytes, GUARD, FXI_CHECK_GUARD);
    put(c, b, GUARD, b->bytes, FXI_CHECK_POISON);
    b->released = true;
    b->when = c->steps;
    b->after = c->latest;
    *(c->newest ? &c->newest->newer : &c->oldest) = b;
    c->newest = b;
    c->held += weight(b);
    free_oldest(c, HELD_MOST, why);
}

void fxi_check_free(fx_device *device, void *ptr)
{
    fxi_checker *c = fxi_checker_of(device);
    char why[FXI_CHECK_TEXT] = "", what[120];
    const uintptr_t base = (uintptr_t)ptr - GUARD;
    if (!ptr)
        return;
    fxi_mutex_lock(&c->lock);
    const int32_t k = position(c, device->id, base);
    fxi_check_block *b = k < c->nblocks ? c->blocks[k] : NULL;
    if (!b || b->device != device->id || (uintptr_t)b->base != base) {
        snprintf(why, sizeof why, "%p is freed, but no allocation starts there", ptr);
    } else if (b->released) {
        describe(c, b, what, sizeof what);
        snprintf(why, sizeof why, "%s is freed twice", what);
    } else {
        release(c, b, why);
    }
    fxi_mutex_unlock(&c->lock);
    fxi_check_report(device, why);
}

void fxi_check_reclaim(fx_device *device)
{
    fxi_checker *c = fxi_checker_of(device);
    char why[FXI_CHECK_TEXT] = "";
    fxi_mutex_lock(&c->lock);
    free_oldest(c, 0, why);
    fxi_mutex_unlock(&c->lock);
    fxi_check_report(device, why);
}
