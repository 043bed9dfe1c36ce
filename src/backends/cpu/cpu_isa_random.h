/* cpu_isa_random.h: the words of Philox (philox.h) as vectors, and uniform random numbers made of
 * them; part of cpu_isa.h.
 *
 * Two lanes of 64 bits hold one block: `even` has the counter's words 0 and 2 in their lower
 * halves, `odd` has the words 1 and 3. The upper halves hold anything, because the multiplication
 * reads only the lower ones. So a round is one product, one exchange, one shift and two exclusive
 * ors, and the last round leaves the four words in the order in which memory has them.
 */

/* Products of the lower halves of all lanes. */
#ifndef FXI_MUL_LOW
#define FXI_MUL_LOW(a, b) (((a)&UINT32_MAX) * ((b)&UINT32_MAX))
#endif
/* Exchanges the two lanes of each block. */
#ifndef FXI_SWAP_LANES
#define FXI_SWAP_LANES(a) __builtin_shufflevector((a), (a), 1, 0)
#endif

/* A round waits for the previous one, so several vectors are computed side by side. */
enum {
    PHILOX_BLOCKS = FXI_VECTOR_BYTES / 16, /* of one vector */
    PHILOX_VECTORS = 4,
    PHILOX_WORDS = 4 * PHILOX_BLOCKS * PHILOX_VECTORS,
};

/* The vector in which the lanes of every block are a and b. */
static inline vl pairs_of_lanes(uint64_t a, uint64_t b)
{
    vl v = {0};
    for (int i = 0; i < PHILOX_BLOCKS; i++)
        v[2 * i] = a, v[2 * i + 1] = b;
    return v;
}

/* The counters of the blocks of one vector, the first of which has the number `block`. */
static inline vl philox_counters(const uint64_t stream[2], uint64_t block)
{
    vl v = pairs_of_lanes(block, stream[1]);
    for (int i = 1; i < PHILOX_BLOCKS; i++)
        v[2 * i] += (uint64_t)i;
    return v;
}

/* Computes the words of PHILOX_VECTORS vectors of blocks. `counters` has the counters of the first
 * of these vectors, and after the call those of the vector that follows the last one. */
static inline void philox_words(vl key, vl *counters, vl out[PHILOX_VECTORS])
{
    const vl factor = pairs_of_lanes(0xD2511F53u, 0xCD9E8D57u);
    const vl increment = pairs_of_lanes(0x9E3779B9u, 0xBB67AE85u);
    const vl next = pairs_of_lanes(PHILOX_BLOCKS, 0);
    vl even[PHILOX_VECTORS], odd[PHILOX_VECTORS];
    for (int v = 0; v < PHILOX_VECTORS; v++, *counters += next) {
        even[v] = *counters;
        odd[v] = *counters >> 32;
    }
    for (int round = 0; round < 10; round++) {
        for (int v = 0; v < PHILOX_VECTORS; v++) {
            const vl product = FXI_MUL_LOW(even[v], factor), other = FXI_SWAP_LANES(product);
            even[v] = (other >> 32) ^ odd[v] ^ key;
            odd[v] = other;
        }
        key += increment;
    }
    for (int v = 0; v < PHILOX_VECTORS; v++)
        out[v] = (even[v] & UINT32_MAX) | (odd[v] << 32);
}

/* A number is the upper `bits` bits of one word, divided by 2^bits. */
static void random_f32(const uint64_t stream[2], uint64_t block, int64_t n, int bits, float *out)
{
    const float unit = 1.0f / (float)(1u << bits);
    const vl key = pairs_of_lanes(stream[0], stream[0] >> 32);
    vl counters = philox_counters(stream, block);
    for (int64_t i = 0; i < n; i += PHILOX_WORDS) {
        vl words[PHILOX_VECTORS];
        float number[PHILOX_WORDS];
        philox_words(key, &counters, words);
        /* An end that does not fill all vectors is computed in a buffer, because whole vectors are
         * stored and nothing beyond the array may be written. */
        const bool whole = n - i >= PHILOX_WORDS;
        float *const to = whole ? out + i : number;
        for (int v = 0; v < PHILOX_VECTORS; v++) {
            /* At most 24 bits, so w is never negative. Signed integers are faster to convert. */
            const vi w = (vi)((vu)words[v] >> (32 - bits));
            const vf x = __builtin_convertvector(w, vf) * unit;
            memcpy(to + v * FXI_VECTOR_BYTES / 4, &x, sizeof x);
        }
        if (!whole)
            memcpy(out + i, number, (size_t)(n - i) * sizeof *out);
    }
}

/* Numbers of 53 random bits: 32 of a first word and 21 of the second. Both terms and their sum are
 * exact. If an integer below 2⁵² replaces the lower 52 bits of the double 2⁵², the double is 2⁵² +
 * that integer. */
static void random_f64(const uint64_t stream[2], uint64_t block, int64_t n, double *out)
{
    enum { NUMBERS = PHILOX_WORDS / 2 };
    const vl magic = pairs_of_lanes(0x4330000000000000u, 0x4330000000000000u);
    const vl key = pairs_of_lanes(stream[0], stream[0] >> 32);
    vl counters = philox_counters(stream, block);
    for (int64_t i = 0; i < n; i += NUMBERS) {
        vl words[PHILOX_VECTORS];
        double number[NUMBERS];
        philox_words(key, &counters, words);
        const bool whole = n - i >= NUMBERS;
        double *const to = whole ? out + i : number;
        for (int v = 0; v < PHILOX_VECTORS; v++) {
            const vl first = (words[v] & UINT32_MAX) | magic, second = (words[v] >> 43) | magic;
            const vd x = ((vd)first - (vd)magic) * 0x1p-32 + ((vd)second - (vd)magic) * 0x1p-53;
            memcpy(to + v * FXI_VECTOR_BYTES / 8, &x, sizeof x);
        }
        if (!whole)
            memcpy(out + i, number, (size_t)(n - i) * sizeof *out);
    }
}

static const fxi_random_core tile_random = {random_f32, random_f64};
