/* device_memory.c: the memory limits that the environment sets for a device, the memory figures of
 * a device, and the error of a failed allocation.
 *
 * The environment is read when a device is first used, so its settings also hold for the devices of
 * plugins that are loaded later.
 */
#include "c_text.h"
#include "memory.h"
#include "pool.h"
#include "system_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the environment ------------------------------------------------------------------------- */

/* Parses "8GiB", "1.5 GB", "1000" into bytes; −1 if it is not a size. */
static int64_t size_of_text(const char *s, const char *end)
{
    static const char prefixes[] = "KMGTP";
    double value = 0, unit = 1, fraction = 1;
    const char *digits = s;
    for (bool point = false; s < end && ((*s >= '0' && *s <= '9') || (*s == '.' && !point)); s++) {
        point |= *s == '.';
        if (*s != '.')
            value = 10 * value + (*s - '0');
        if (point && *s != '.')
            fraction *= 10;
    }
    if (s == digits || s[-1] == '.')
        return -1;
    while (s < end && *s == ' ')
        s++;
    const char *prefix = s < end && *s ? strchr(prefixes, *s & ~0x20) : NULL;
    if (prefix) {
        const bool binary = ++s < end && (*s == 'i' || *s == 'I');
        s += binary;
        for (int i = 0; i <= (int)(prefix - prefixes); i++)
            unit *= binary ? 1024 : 1000;
    }
    s += s < end && (*s == 'B' || *s == 'b');
    const double bytes = value * unit / fraction; /* any other order makes "8.19kB" 8189 */
    return s == end && bytes < 0x1p62 ? (int64_t)bytes : -1;
}

/* Does "CUDA:0" or "CUDA" before the "=" mean this device? No name means all devices with memory of
 * their own. */
static bool is_meant(const fx_device *d, const char *name, size_t n)
{
    const char *backend = d->backend->head.name;
    if (n == 0)
        return !fxi_device_on_host(d);
    return (fxi_same_start_ignoring_case(name, d->name, n) && !d->name[n]) ||
           (fxi_same_start_ignoring_case(name, backend, n) && !backend[n]);
}

/* The value that a variable such as "8GiB,CUDA:1=4GiB" sets for a device; the last matching entry
 * counts. */
static int64_t setting(const char *variable, const fx_device *d, int64_t otherwise)
{
    const char *text = getenv(variable);
    int64_t result = otherwise;
    while (text && *text) {
        const char *end = text + strcspn(text, ","),
                   *equals = memchr(text, '=', (size_t)(end - text));
        const char *size = equals ? equals + 1 : text;
        if (is_meant(d, text, equals ? (size_t)(equals - text) : 0)) {
            const int64_t bytes = size_of_text(size, end);
            if (bytes < 0)
                fx_message(1, "%s: \"%.*s\" is not a size such as 8GiB; it is ignored for %s.",
                           variable, (int)(end - size), size, d->name);
            else
                result = bytes;
        }
        text = *end ? end + 1 : end;
    }
    return result;
}

void fxi_pool_settings(fx_device *device, int64_t *out_limit, int64_t *out_cache)
{
    *out_limit = setting("FX_MEMORY_LIMIT", device, 0);
    *out_cache = setting("FX_MEMORY_CACHE", device, -1);
}

/* ---- figures --------------------------------------------------------------------------------- */

int64_t fxi_device_free(fx_device *d)
{
    int64_t total, available;
    if (d->backend->available)
        return d->backend->available(d);
    if (!fxi_device_on_host(d))
        return -1;
    fxi_system_memory(&total, &available);
    return available;
}

static int64_t total_of(const fx_device *d)
{
    int64_t total = d->info.memory, available;
    if (total <= 0 && fxi_device_on_host(d))
        fxi_system_memory(&total, &available);
    return total;
}

static int64_t cached_of(fx_device *d)
{
    return fxi_device_on_host(d) ? (int64_t)fxi_memory_cached_by_all()
                                 : __atomic_load_n(&fxi_pool_of(d)->cached, __ATOMIC_RELAXED);
}

void fxi_memory_figures(fx_device *d, fx_memory *out)
{
    const fxi_pool *p = fxi_pool_of(d);
    *out = (fx_memory){.fxi_size = sizeof *out,
                       .live = fxi_device_live(d),
                       .cached = cached_of(d),
                       .free = fxi_device_free(d),
                       .total = total_of(d),
                       .limit = fxi_device_limit(d),
                       .peak = __atomic_load_n(&p->peak, __ATOMIC_RELAXED),
                       .plans = __atomic_load_n(&p->plans, __ATOMIC_RELAXED)};
}

bool fxi_device_can_hold(fx_device *d, int64_t bytes)
{
    const int64_t limit = fxi_device_limit(d), total = d->info.memory;
    if ((limit > 0 && bytes > limit) || (total > 0 && bytes > total))
        return false;
    const int64_t most = fxi_device_on_host(d) ? fxi_system_memory_most(NULL) : -1;
    return most < 0 || bytes <= most;
}

bool fxi_device_fits(fx_device *d, int64_t bytes, int64_t idle)
{
    const int64_t limit = fxi_device_limit(d);
    if (limit > 0 && bytes > limit - fxi_device_live(d) + idle)
        return false;
    if (fxi_device_on_host(d) || bytes <= cached_of(d) + idle)
        return true;
    const int64_t available = fxi_device_free(d);
    return available < 0 || bytes <= available + cached_of(d) + idle;
}

/* ---- the error ------------------------------------------------------------------------------- */

enum { LARGEST = 5 };

/* The largest arrays of a pool, by decreasing size; returns how many. The pool must be locked. */
static int largest(const fxi_pool *p, const fxi_buffer *top[LARGEST])
{
    int n = 0;
    for (const fxi_buffer *b = p->arrays; b; b = b->next) {
        int i = n;
        while (i > 0 && top[i - 1]->bytes < b->bytes)
            i--;
        if (i == LARGEST)
            continue;
        n += n < LARGEST;
        memmove(&top[i + 1], &top[i], (size_t)(n - i - 1) * sizeof *top);
        top[i] = b;
    }
    return n;
}

static void largest_text(fx_device *d, char *text, size_t capacity)
{
    fxi_pool *p = fxi_pool_of(d);
    const fxi_buffer *top[LARGEST];
    char shape[FXI_SHAPE_TEXT];
    size_t at = 0;
    *text = 0;
    fxi_mutex_lock(&p->lock);
    const int n = largest(p, top);
    for (int i = 0; i < n && at < capacity; i++)
        at += (size_t)snprintf(
            text + at, capacity - at, "%s%s %s (%zu bytes)",
            i ? ", " : "; the largest arrays: ", fxi_shape_text(top[i]->ndim, top[i]->shape, shape),
            fx_dtype_name((fx_dtype)top[i]->dtype), top[i]->bytes);
    fxi_mutex_unlock(&p->lock);
}

fx_status fxi_no_memory(const char *op, fx_device *device, int64_t bytes, const char *more)
{
    fx_memory m;
    char most[48] = "", available[48] = "", arrays[400];
    fxi_memory_figures(device, &m);
    if (m.limit > 0)
        snprintf(most, sizeof most, " of at most %lld", (long long)m.limit);
    if (m.free >= 0)
        snprintf(available, sizeof available, ", %lld free", (long long)m.free);
    largest_text(device, arrays, sizeof arrays);
    return fx_fail(FX_STATUS_MEMORY, op,
                   "no memory for %lld bytes on %s (%lld bytes live%s, %lld "
                   "cached%s)%s%s",
                   (long long)bytes, device->name, (long long)m.live, most, (long long)m.cached,
                   available, more, arrays);
}
