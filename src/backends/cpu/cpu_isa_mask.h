/* cpu_isa_mask.h: counts and tests of Bool masks, whose bytes are 0 or 1; part of cpu_isa.h.
 *
 * The masks of attention have long runs of equal bytes, and those of one-hot targets few true ones.
 * So a block is tested as a whole first, and most blocks have no true byte. Inside a block no
 * branch depends on the positions of the true elements: it would be mispredicted for nearly every
 * one of them.
 */
enum { MASK_BLOCK = 64 /* bytes that are tested at once: a cache line */ };

/* Masks begin at any byte. memcpy becomes one load, and may read the bytes as another type. */
static inline vl mask_load(const uint8_t *mask)
{
    vl v;
    memcpy(&v, mask, sizeof v);
    return v;
}
/* Eight bytes, for the rest after the last whole vector. */
static inline uint64_t mask_word(const uint8_t *mask)
{
    uint64_t bytes;
    memcpy(&bytes, mask, sizeof bytes);
    return bytes;
}

static inline bool mask_some_of_block(const uint8_t *mask)
{
    vl v = mask_load(mask);
    FXI_UNROLL
    for (int k = FXI_VECTOR_BYTES; k < MASK_BLOCK; k += FXI_VECTOR_BYTES)
        v |= mask_load(mask + k);
    return FXI_SOME(v);
}
/* Is one of n bytes true? For fewer bytes than a block has. */
static bool mask_some_of(const uint8_t *mask, int64_t n)
{
    uint64_t some = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        some |= mask_word(mask + i);
    for (; i < n; i++)
        some |= mask[i];
    return some != 0;
}

/* The number of elements of the first blocks that are alike: either each has a true element
 * (*out_some), or none has. Whole blocks are enough for the caller, which chooses between two ways
 * to compute them. */
static int64_t mask_run(const uint8_t *mask, int64_t n, bool *out_some)
{
    const bool first = n < MASK_BLOCK ? mask_some_of(mask, n) : mask_some_of_block(mask);
    int64_t run = n < MASK_BLOCK ? n : MASK_BLOCK;
    *out_some = first;
    for (; run + MASK_BLOCK <= n; run += MASK_BLOCK)
        if (mask_some_of_block(mask + run) != first)
            return run;
    return run < n && mask_some_of(mask + run, n - run) == first ? n : run;
}

/* The sum of the 16-bit parts of a word, below 2¹⁶. */
static inline int64_t sum_of_parts(uint64_t parts)
{
    return (int64_t)(parts * UINT64_C(0x0001000100010001) >> 48);
}
/* Neighbouring bytes, added. */
#define FXI_BYTE_PAIRS(v)                                                                          \
    (((v)&UINT64_C(0x00ff00ff00ff00ff)) + ((v) >> 8 & UINT64_C(0x00ff00ff00ff00ff)))

/* Bytes are added as bytes for as long as none can overflow, and only then as wider numbers. */
static int64_t mask_count(const uint8_t *mask, int64_t n)
{
    enum { MOST = 255 * FXI_VECTOR_BYTES }; /* a byte of `sums` counts up to 255 */
    int64_t count = 0, i = 0;
    while (n - i >= FXI_VECTOR_BYTES) {
        const int64_t end = n - i < MOST ? n : i + MOST;
        uint64_t words[FXI_VECTOR_BYTES / 8], parts = 0;
        vl sums = {0};
        /* No byte overflows into its neighbour, so words can be added. */
        for (; i + FXI_VECTOR_BYTES <= end; i += FXI_VECTOR_BYTES)
            sums += mask_load(mask + i);
        sums = FXI_BYTE_PAIRS(sums);
        memcpy(words, &sums, sizeof words);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            parts += words[k];
        count += sum_of_parts(parts);
    }
    uint64_t rest = 0; /* at most 7 words: no byte overflows */
    for (; i + 8 <= n; i += 8)
        rest += mask_word(mask + i);
    for (; i < n; i++)
        count += mask[i];
    return count + sum_of_parts(FXI_BYTE_PAIRS(rest));
}

/* The true bytes of a block as bits. */
#ifndef FXI_MASK_BITS
static inline uint64_t mask_bits(const uint8_t *mask)
{
    /* The product moves the lowest bit of byte k to bit 56 + k. */
    uint64_t bits = 0;
    for (int k = 0; k < MASK_BLOCK; k += 8)
        bits |= mask_word(mask + k) * UINT64_C(0x0102040810204080) >> 56 << k;
    return bits;
}
#define FXI_MASK_BITS(p) mask_bits(p)
#endif

/* The positions of the true elements. Ends after the block in which their number exceeds `most`:
 * the caller then computes all elements. */
static int mask_list(const uint8_t *mask, int64_t n, int most, int64_t *list)
{
    int listed = 0;
    int64_t i = 0;
    for (; i + MASK_BLOCK <= n && listed <= most; i += MASK_BLOCK) {
        if (!mask_some_of_block(mask + i))
            continue;
        /* No branch depends on where in the block the true elements are. */
        for (uint64_t bits = FXI_MASK_BITS(mask + i); bits; bits &= bits - 1)
            list[listed++] = i + __builtin_ctzll(bits);
    }
    if (listed > most || !mask_some_of(mask + i, n - i))
        return listed;
    for (; i < n; i++)
        if (mask[i])
            list[listed++] = i;
    return listed;
}
