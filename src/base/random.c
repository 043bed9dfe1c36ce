/* random.c: gives each random operation its counter.
 *
 * A stream is (seed, name of the stream, count). The counter of a call is name << 40 | count, so a
 * stream has 2^40 calls before names could collide. In Philox (philox.h) the seed is the key, and
 * the counter of the call is the high half of the 128-bit counter. Draws on the host use a block
 * number with all bits set, which no array reaches.
 */
#include "random.h"
#include "philox.h"

#include <cflux/base.h>

static _Thread_local fxi_random_state stream;

/* A thread without a seed draws from a stream of its own, so two of them never draw the same
 * numbers: the seed of these streams is 0, and their names are 0, 1, …. The stream of fx_seed(0)
 * has the name 0 as well. So fx_seed takes a name too, and no later thread gets the name 0. */
static void name_once(void)
{
    static uint64_t threads;
    if (stream.named)
        return;
    stream.named = true;
    stream.name = __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED);
}

void fx_seed(uint64_t seed)
{
    name_once();
    fxi_random_name(seed, 0);
}

void fxi_random_next(uint64_t out_stream[2])
{
    name_once();
    out_stream[0] = stream.seed;
    out_stream[1] = (stream.name << 40) | stream.count++;
}

void fxi_random_name(uint64_t seed, uint64_t name)
{
    stream.seed = seed;
    stream.name = name;
    stream.named = true;
    stream.count = 0;
}

fxi_random_state fxi_random_now(void)
{
    name_once();
    return stream;
}

fxi_random_state fxi_random_enter(uint64_t key)
{
    const fxi_random_state before = stream;
    fxi_random_name(key, 0);
    return before;
}

void fxi_random_leave(fxi_random_state before)
{
    stream = before;
}

fx_random_state fx_random_get(void)
{
    const fxi_random_state now = fxi_random_now();
    return (fx_random_state){now.seed, now.name, now.count, now.named};
}

void fx_random_set(fx_random_state s)
{
    stream = (fxi_random_state){s.fxi_seed, s.fxi_name, s.fxi_count, s.fxi_named};
}

uint64_t fx_rand_u64(void)
{
    uint64_t s[2];
    uint32_t w[4];
    fxi_random_next(s);
    fxi_philox(s[0], s[1], UINT64_MAX, w);
    return ((uint64_t)w[0] << 32) | w[1];
}
