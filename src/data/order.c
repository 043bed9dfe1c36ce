/* order.c: random orders: see order.h. */
#include "order.h"

#include "memory.h"

uint64_t fxi_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The lowest 2^64 mod bound values are drawn again, because they would favour some results. */
uint64_t fxi_draw_below(fxi_draws *draws, uint64_t bound)
{
    const uint64_t unfair = (0 - bound) % bound;
    uint64_t r;
    do
        r = fxi_mix(draws->key + ++draws->counter * 0x9E3779B97F4A7C15u);
    while (r < unfair);
    return r % bound;
}

void fxi_draw_order(fxi_draws *draws, int64_t n, int64_t *io)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = (int64_t)fxi_draw_below(draws, (uint64_t)i + 1), x = io[i];
        io[i] = io[j];
        io[j] = x;
    }
}

int64_t *fxi_shuffled(int64_t n, uint64_t seed, uint64_t pass)
{
    int64_t *order = fxi_calloc(n ? (size_t)n : 1, sizeof *order);
    fxi_draws draws = {.key = fxi_mix(fxi_mix(seed) + pass)};
    for (int64_t i = 0; order && i < n; i++)
        order[i] = i;
    if (order)
        fxi_draw_order(&draws, n, order);
    return order;
}
