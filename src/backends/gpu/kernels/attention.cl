// Attention and its gradients, one kernel for each result: see gpu_attention.c. A group computes
// some rows of the result: of queries, or of keys for the gradient of k and v. It moves along the
// other axis by TILE rows at a time, copies them into local memory while it computes with the
// previous ones (FX_ASYNC of matrix.cl), and keeps its own rows and its sums in registers.
//// attention_functions
#ifdef __CUDA_ARCH__
FX_FN fx_f32 fx_exp2(fx_f32 x)
{ fx_f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FX_FN fx_u32 fx_two_f16(fx_f32 x, fx_f32 y)
{ fx_u32 w; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x)); return w; }
#define fx_two_bf16 fx_pair_bf16
FX_FN void fx_async_f32(fx_near to, const fx_f32 *from, fx_u32 bytes)
{ asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
    :: "r"(to), "l"(from), "r"(bytes) : "memory"); }
FX_FN fx_f32 fx_larger(fx_f32 x, fx_f32 y)
{ fx_f32 z; asm("max.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
#else
#define fx_async_f32(to, from, bytes) (*(fx_f32 *)(to) = (bytes) ? *(from) : 0)
FX_FN fx_f32 fx_larger(fx_f32 x, fx_f32 y) { return x > y ? x : y; }
#define fx_exp2(x) FX_F32(exp)((x) * 0.69314718f)
#define fx_two_f16(x, y) (fx_f16_out(x) | (fx_u32)fx_f16_out(y) << 16)
#define fx_two_bf16(x, y) (fx_bf16_out(x) | (fx_u32)fx_bf16_out(y) << 16)
#endif

//// attention
// The features of a head, rounded up to a multiple of a cell's terms.
#define D @features@
#define E @value_features@
// A warp has CELLS · 16 rows, and a group ROWS.
#define CELLS @cells@
#define ROWS (FX_GROUP / FX_WARP * CELLS * 16)
#define TILE @tile@
#define QUERIES P(0)
#define KEYS P(1)
#define FEATURES P(2)
#define VALUE_FEATURES P(3)
#define HEADS P(4)
#define BATCH P(5)
#define CAUSAL P(6)
#define SCALE fx_float((fx_u32)P(7))
#define GROUPS P(8)
#define BAND P(9)
#define ROW_OF(k) P(10 + 2 * (k))
#define BATCH_OF(k) P(11 + 2 * (k))
#define MASK_STRIDE(axis) P(18 + (axis))
#define LOG2_OF_E 1.44269504f
// A row of a tile in local memory, in bytes: 16 more than its numbers, so that the same columns of
// eight rows are in different banks.
#define STRIDE(n) ((n) * 2 + 16)
#define BYTES(n) (TILE * STRIDE(n))
#define STAGE @stage@
// A work-item copies units of eight neighbouring columns: START computes the first one and the
// distance of the others. Rows and columns outside the operand become zeros. The addresses of views
// are multiples of 16 bytes from the operand's own, which may be any multiple of an element.
#define UNITS(n) (n > 64 ? 16 : n > 32 ? 8 : n > 16 ? 4 : 2)
#define START(x, n, first, stride) \
    const fx_u32 x##_r = item / UNITS(n), x##_c = item % UNITS(n) * 8; \
    fx_int x##_at = x##_from + ((first) + (fx_int)x##_r) * (stride) + (fx_int)x##_c;
#define FETCH(start, x, n, first, most, used, stride) \
    if (x##_c < n && x##_r < TILE) \
        FX_UNROLL for (fx_u32 w = 0; w < (TILE * UNITS(n) + FX_GROUP - 1) / FX_GROUP; w++) { \
            const fx_u32 down = w * (FX_GROUP / UNITS(n)); \
            const fx_u32 offset = (start) + (x##_r + down) * STRIDE(n) + x##_c * 2; \
            const FX_GLOBAL fx_u16 *unit = x + x##_at + (fx_int)down * (stride); \
            const fx_i32 inside = (fx_int)x##_c < used && (fx_int)(x##_r + down) < most - (first); \
            if (FX_ADDRESS(x) % 16 == 0) fx_async(near + offset, unit, inside ? 16u : 0u); \
            else FX_LOOP for (fx_u32 j = 0; j < 8; j++) \
                ((FX_SHARED fx_u16 *)tiles)[offset / 2 + j] = inside ? unit[j] : (fx_u16)0; } \
    x##_at += TILE * (stride);
// Loads a warp's own rows as left sides of cells.
#define OWN(part, x, first, most, n, used, stride) \
    fx_u32 part[CELLS][n / 16][4]; \
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++) \
        FX_UNROLL for (fx_u32 d = 0; d < n / 16; d++) \
            FX_UNROLL for (fx_u32 i = 0; i < 4; i++) { \
                const fx_int r = (first) + (fx_int)(m * 16 + lane / 4 + i % 2 * 8); \
                const fx_int c = (fx_int)(d * 16 + lane % 4 * 2 + i / 2 * 8); \
                const FX_GLOBAL fx_u16 *word = x + x##_from + r * (stride) + c; \
                part[m][d][i] = r >= most || c >= used ? 0u : FX_ADDRESS(x) % 4 == 0 ? \
                    *(const FX_GLOBAL fx_u32 *)word : word[0] | (fx_u32)word[1] << 16; }
#define CLEAR(sum, n) \
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++) \
        FX_UNROLL for (fx_u32 y = 0; y < n; y++) \
            FX_UNROLL for (fx_u32 i = 0; i < 4; i++) sum[m][y][i] = 0;
// Adds the products with 16 rows of a tile to two cells of each left side, from number `at` on.
#define PRODUCT(sum, at, left, n, aim) \
    FX_UNROLL for (fx_u32 d = 0; d < n / 16; d++) { \
        fx_u32 right[4]; \
        fx_parts(right, (aim) + d * 32); \
        FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++) { \
            FX_MMA(@name@, sum[m][at], left[m][d], right); \
            FX_MMA(@name@, sum[m][(at) + 1], left[m][d], right + 2); } }
// Adds the products with 16 rows of a tile, which are the terms, to all columns.
#define PRODUCT_ACROSS(sum, left, n, aim) \
    FX_UNROLL for (fx_u32 d = 0; d < n / 16; d++) { \
        fx_u32 right[4]; \
        fx_parts_across(right, (aim) + d * 32); \
        FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++) { \
            FX_MMA(@name@, sum[m][2 * d], left[m], right); \
            FX_MMA(@name@, sum[m][2 * d + 1], left[m], right + 2); } }
// Where a work-item finds its row of a block of 16 rows, for the two products.
#define AIM(n) (near + (lane / 16 * 8 + lane % 8) * STRIDE(n) + lane / 8 % 2 * 16)
#define AIM_ACROSS(n) (near + (lane / 8 % 2 * 8 + lane % 8) * STRIDE(n) + lane / 16 * 16)
// Sums are the left side of the next product: a work-item holds the same elements of both.
#define AS_LEFT(part, sum, at) \
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++) \
        FX_UNROLL for (fx_u32 i = 0; i < 4; i++) \
            part[m][i] = fx_two_@name@(sum[m][(at) + i / 2][i % 2 * 2], \
                sum[m][(at) + i / 2][i % 2 * 2 + 1]);
// MASK is the number of the buffer of the mask; 0: there is none. It hides the pairs of a key and a
// query for which it is false. The gradient of a hidden score is 0. Its α is 0 too, but NaN if the query
// sees no key: the logarithm of that query is −∞.
#define MASK @mask@
#if MASK
#define UNSEEN(key, query) (!mask[mask_from + (key) * MASK_STRIDE(0) + (query) * MASK_STRIDE(1)])
#else
#define UNSEEN(key, query) 0
#endif
// May a key `c` of the tile be hidden from the query `r` of the warp? By a mask, or because the tile
// ends after the last key or, if causal, after the warp's first query.
#define MASKED (MASK || at + TILE > KEYS || (CAUSAL && at + TILE > own + 1))
#define SEEN \
    const fx_i32 seen = (fx_i32)(KEYS - at) - (fx_i32)(lane % 4 * 2); \
    const fx_i32 before = CAUSAL ? (fx_i32)(own - at) + (fx_i32)(lane / 4) - (fx_i32)(lane % 4 * 2) : TILE;
#define HIDDEN(c, r) ((fx_i32)(c) >= seen || (fx_i32)(c) > before + (fx_i32)(r) || \
    (own + (fx_int)(lane / 4 + (r)) < QUERIES && \
        UNSEEN(at + (fx_int)(lane % 4 * 2 + (c)), own + (fx_int)(lane / 4 + (r)))))
// Stores the warp's rows, times `factor`, as words of two columns.
#define STORE(x, sum, n, used, stride, most, factor) \
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++) \
        FX_UNROLL for (fx_u32 i = 0; i < 4; i += 2) { \
            const fx_int r = own + (fx_int)(m * 16 + lane / 4 + i * 4); \
            const fx_f32 f = factor; \
            FX_UNROLL for (fx_u32 y = 0; y < n / 8; y++) { \
                const fx_int c = (fx_int)(y * 8 + lane % 4 * 2); \
                if (r < most && c < used) *(FX_GLOBAL fx_u32 *)(x + r * (stride) + c) = \
                    fx_two_@name@(sum[m][y][i] * f, sum[m][y][i + 1] * f); } }
    FX_LOCAL_ASKED(fx_v16, tiles, 2 * STAGE / 16);
    const fx_near near = fx_near_of(tiles);
    const fx_u32 item = (fx_u32)FX_ITEM, lane = item % FX_WARP;
    const fx_int below = (fx_int)(item / FX_WARP * (CELLS * 16));
// The groups of a band of heads run at about the same time and find the operands in the cache. The
// longest rows of a causal mask come first, so that the last groups end together.
    const fx_int heads = HEADS * BATCH, band = FX_GROUP_X / (BAND * GROUPS) * BAND;
    const fx_int high = heads - band < BAND ? heads - band : BAND;
    const fx_int along = FX_GROUP_X - band * GROUPS, z = band + along % high;
    const fx_int head = z % HEADS, batch = z / HEADS;
    const fx_f32 log2_scale = SCALE * LOG2_OF_E;
    FX_USE(0, const fx_u16, q)
    FX_USE(1, const fx_u16, k)
    const fx_int q_from = batch * BATCH_OF(0) + head * FEATURES;
    const fx_int k_from = batch * BATCH_OF(1) + head * FEATURES;
#if MASK
    FX_USE(@mask@, const fx_u8, mask)
    const fx_int mask_from = head * MASK_STRIDE(2) + batch * MASK_STRIDE(3);
#endif

// The rows of y, of the logarithms, or of both: an online softmax. LOGS is the number of the buffer of
// the logarithms; 0: there is none.
//// attention_forward
#define VALUES @values@
#define LOGS @logs@
    const fx_int first = (GROUPS - 1 - along / high) * ROWS, own = first + below;
    const fx_int end = CAUSAL && first + ROWS < KEYS ? first + ROWS : KEYS;
#if VALUES
    FX_USE(2, const fx_u16, v)
    FX_USE(@result@, fx_u16, y_all)
    const fx_int v_from = batch * BATCH_OF(2) + head * VALUE_FEATURES;
    FX_GLOBAL fx_u16 *to = y_all + (batch * QUERIES * HEADS + head) * VALUE_FEATURES;
#define FETCH_BOTH(start, from) { \
    FETCH(start, k, D, from, KEYS, FEATURES, ROW_OF(1)) \
    FETCH((start) + BYTES(D), v, E, from, KEYS, VALUE_FEATURES, ROW_OF(2)) \
    FX_ASYNC_CLOSE; }
    fx_f32 out[CELLS][E / 8][4];
    CLEAR(out, E / 8)
#else
#define FETCH_BOTH(start, from) { \
    FETCH(start, k, D, from, KEYS, FEATURES, ROW_OF(1)) \
    FX_ASYNC_CLOSE; }
#endif
#if LOGS
    FX_USE(@logs@, fx_f32, log_all)
#endif
    START(k, D, 0, ROW_OF(1))
#if VALUES
    START(v, E, 0, ROW_OF(2))
#endif
    FETCH_BOTH(0, 0)
    OWN(left, q, own, QUERIES, D, FEATURES, ROW_OF(0))
    fx_f32 most[CELLS][2], total[CELLS][2];
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
        FX_UNROLL for (fx_u32 i = 0; i < 2; i++) {
            most[m][i] = -FX_INF;
            total[m][i] = 0;
        }
    fx_u32 read = 0;
    FX_LOOP for (fx_int at = 0; at < end; at += TILE) {
        FX_ASYNC_WAIT(0);
// All warps have read the tile that the next one replaces.
        FX_BARRIER;
        if (at + TILE < end) FETCH_BOTH(STAGE - read, at + TILE)
        if (!CAUSAL || at < own + CELLS * 16) {
        fx_f32 sum[CELLS][TILE / 8][4];
        CLEAR(sum, TILE / 8)
        FX_UNROLL for (fx_u32 n = 0; n < TILE / 16; n++)
            PRODUCT(sum, 2 * n, left, D, AIM(D) + read + n * (16 * STRIDE(D)))
        if (MASKED) {
            SEEN
            FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < TILE / 8; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++)
                        if (HIDDEN(y * 8 + i % 2, m * 16 + i / 2 * 8)) sum[m][y][i] = -FX_INF;
        }
        FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
            FX_UNROLL for (fx_u32 i = 0; i < 4; i += 2) {
                fx_f32 now = most[m][i / 2];
                FX_UNROLL for (fx_u32 y = 0; y < TILE / 8; y++) {
                    now = fx_larger(now, sum[m][y][i]);
                    now = fx_larger(now, sum[m][y][i + 1]);
                }
                now = fx_larger(now, fx_float(fx_shuffle(fx_bits(now), lane ^ 1)));
                now = fx_larger(now, fx_float(fx_shuffle(fx_bits(now), lane ^ 2)));
// A row whose scores are all −∞ so far keeps zeros as sums. While the maximum stays, f is exactly 1.
                const fx_f32 top = now > -FX_INF ? now : 0, base = top * log2_scale;
                const fx_f32 f = fx_exp2((most[m][i / 2] - top) * log2_scale);
                most[m][i / 2] = now;
                fx_f32 sums = 0;
                FX_UNROLL for (fx_u32 y = 0; y < TILE / 8; y++)
                    FX_UNROLL for (fx_u32 j = i; j < i + 2; j++) {
                        sum[m][y][j] = fx_exp2(FX_MAD(sum[m][y][j], log2_scale, -base));
                        sums += sum[m][y][j];
                    }
                total[m][i / 2] = FX_MAD(total[m][i / 2], f, sums);
#if VALUES
                FX_UNROLL for (fx_u32 y = 0; y < E / 8; y++) {
                    out[m][y][i] *= f;
                    out[m][y][i + 1] *= f;
                }
#endif
            }
#if VALUES
        FX_UNROLL for (fx_u32 n = 0; n < TILE / 16; n++) {
            fx_u32 part[CELLS][4];
            AS_LEFT(part, sum, 2 * n)
            PRODUCT_ACROSS(out, part, E, AIM_ACROSS(E) + read + BYTES(D) + n * (16 * STRIDE(E)))
        }
#endif
        }
        read = STAGE - read;
    }
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
        FX_UNROLL for (fx_u32 i = 0; i < 2; i++) {
            fx_f32 t = total[m][i];
            t += fx_float(fx_shuffle(fx_bits(t), lane ^ 1));
            total[m][i] = t + fx_float(fx_shuffle(fx_bits(t), lane ^ 2));
        }
#if VALUES
    STORE(to, out, E, VALUE_FEATURES, HEADS * VALUE_FEATURES, QUERIES, 1 / total[m][i / 2])
#endif
#if LOGS
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
        FX_UNROLL for (fx_u32 i = 0; i < 2; i++) {
            const fx_int r = own + (fx_int)(m * 16 + lane / 4 + i * 8);
            if (r < QUERIES && lane % 4 == 0) log_all[(batch * QUERIES + r) * HEADS + head] =
                FX_MAD(most[m][i], SCALE, FX_F32(log)(total[m][i]));
        }
#endif

// The code that both gradients share. FX_USE(4) has the logarithms, FX_USE(5) the sums of gy ⊙ y.
//// attention_gradient
    FX_USE(2, const fx_u16, v)
    FX_USE(3, const fx_u16, g)
    FX_USE(4, const fx_f32, logs)
    FX_USE(5, const fx_f32, delta)
    FX_USE(@result@, fx_u16, x_all)
    const fx_int v_from = batch * BATCH_OF(2) + head * VALUE_FEATURES;
    const fx_int g_from = batch * BATCH_OF(3) + head * VALUE_FEATURES;
    const fx_int numbers_from = batch * QUERIES * HEADS + head;

// The gradient of q: with α the scores after softmax, dα = gy · v, ds = α ⊙ (dα − delta) and
// dq = scale · ds · k.
//// attention_query
#define FETCH_BOTH(start, from) { \
    FETCH(start, k, D, from, KEYS, FEATURES, ROW_OF(1)) \
    FETCH((start) + BYTES(D), v, E, from, KEYS, VALUE_FEATURES, ROW_OF(2)) \
    FX_ASYNC_CLOSE; }
// The scores and dα of 16 keys. They are computed before the previous ones are used, so that the
// device does both at the same time.
#define PIECE(n) { \
    CLEAR(sums[(n) % 2], 2) \
    CLEAR(changes[(n) % 2], 2) \
    PRODUCT(sums[(n) % 2], 0, left, D, AIM(D) + read + (n) * (16 * STRIDE(D))) \
    PRODUCT(changes[(n) % 2], 0, left_g, E, AIM(E) + read + BYTES(D) + (n) * (16 * STRIDE(E))) }
    const fx_int first = (GROUPS - 1 - along / high) * ROWS, own = first + below;
    const fx_int end = CAUSAL && first + ROWS < KEYS ? first + ROWS : KEYS;
    FX_GLOBAL fx_u16 *x = x_all + (batch * QUERIES * HEADS + head) * FEATURES;
    START(k, D, 0, ROW_OF(1))
    START(v, E, 0, ROW_OF(2))
    FETCH_BOTH(0, 0)
    OWN(left, q, own, QUERIES, D, FEATURES, ROW_OF(0))
    OWN(left_g, g, own, QUERIES, E, VALUE_FEATURES, ROW_OF(3))
    fx_f32 out[CELLS][D / 8][4], base[CELLS][2], less[CELLS][2];
    CLEAR(out, D / 8)
    FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
        FX_UNROLL for (fx_u32 i = 0; i < 2; i++) {
            const fx_int row = own + (fx_int)(m * 16 + lane / 4 + i * 8);
            base[m][i] = row < QUERIES ? logs[numbers_from + row * HEADS] * LOG2_OF_E : FX_INF;
            less[m][i] = row < QUERIES ? delta[numbers_from + row * HEADS] : 0;
        }
    fx_u32 read = 0;
    FX_LOOP for (fx_int at = 0; at < end; at += TILE) {
        FX_ASYNC_WAIT(0);
        FX_BARRIER;
        if (at + TILE < end) FETCH_BOTH(STAGE - read, at + TILE)
        if (!CAUSAL || at < own + CELLS * 16) {
        const fx_i32 masked = MASKED;
        SEEN
        fx_f32 sums[2][CELLS][2][4], changes[2][CELLS][2][4];
        PIECE(0)
        FX_UNROLL for (fx_u32 n = 0; n < TILE / 16; n++) {
            fx_f32 (*sum)[2][4] = sums[n % 2], (*change)[2][4] = changes[n % 2];
            if (n + 1 < TILE / 16) PIECE(n + 1)
            FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < 2; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++) {
                        const fx_f32 a =
                            fx_exp2(FX_MAD(sum[m][y][i], log2_scale, -base[m][i / 2]));
                        sum[m][y][i] = a * (change[m][y][i] - less[m][i / 2]);
                    }
            if (masked) FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < 2; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++)
                        if (HIDDEN(n * 16 + y * 8 + i % 2, m * 16 + i / 2 * 8)) sum[m][y][i] = 0;
            fx_u32 part[CELLS][4];
            AS_LEFT(part, sum, 0)
            PRODUCT_ACROSS(out, part, D, AIM_ACROSS(D) + read + n * (16 * STRIDE(D)))
        }
        }
        read = STAGE - read;
    }
    STORE(x, out, D, FEATURES, HEADS * FEATURES, QUERIES, SCALE)

// The gradients of k and v: dv = αᵀ · gy and dk = scale · dsᵀ · q, with the keys as rows.
//// attention_key_value
#define FETCH_BOTH(start, from) { \
    FETCH(start, q, D, from, QUERIES, FEATURES, ROW_OF(0)) \
    FETCH((start) + BYTES(D), g, E, from, QUERIES, VALUE_FEATURES, ROW_OF(3)) \
    if (item < 2 * TILE) fx_async_f32(near + (start) + BYTES(D) + BYTES(E) + item * 4, \
        (item < TILE ? logs : delta) + number, \
        (from) + (fx_int)(item % TILE) < QUERIES ? 4u : 0u); \
    number += TILE * HEADS; \
    FX_ASYNC_CLOSE; }
// For the queries of a tile, local memory has TILE logarithms, then TILE sums.
#define NUMBERS(start) ((FX_SHARED fx_f32 *)tiles + ((start) + BYTES(D) + BYTES(E)) / 4)
    const fx_int first = along / high * ROWS, own = first + below;
    const fx_int from = CAUSAL ? first / TILE * TILE : 0;
    fx_int number = numbers_from + (from + (fx_int)(item % TILE)) * HEADS;
    START(q, D, from, ROW_OF(0))
    START(g, E, from, ROW_OF(3))
    if (from < QUERIES) FETCH_BOTH(0, from)
    OWN(left, k, own, KEYS, D, FEATURES, ROW_OF(1))
    OWN(left_v, v, own, KEYS, E, VALUE_FEATURES, ROW_OF(2))
    fx_f32 out[CELLS][D / 8][4], out_v[CELLS][E / 8][4];
    CLEAR(out, D / 8)
    CLEAR(out_v, E / 8)
    fx_u32 read = 0;
    FX_LOOP for (fx_int at = from; at < QUERIES; at += TILE) {
        FX_ASYNC_WAIT(0);
        FX_BARRIER;
        if (at + TILE < QUERIES) FETCH_BOTH(STAGE - read, at + TILE)
        if (!CAUSAL || at + TILE > own) {
// α is set to 0 for queries before the key, which must not see it, and for queries beyond the end,
// where an infinite key would make it NaN.
        const fx_i32 masked = at + TILE > QUERIES || (CAUSAL && at < own + CELLS * 16);
        const fx_i32 end = (fx_i32)(QUERIES - at) - (fx_i32)(lane % 4 * 2);
        const fx_i32 later = CAUSAL ? (fx_i32)(own - at) + (fx_i32)(lane / 4) - (fx_i32)(lane % 4 * 2) : -TILE - ROWS;
        const FX_SHARED fx_f32 *its = NUMBERS(read) + lane % 4 * 2;
        FX_LOOP for (fx_u32 n = 0; n < TILE / 16; n++) {
            fx_f32 sum[CELLS][2][4], change[CELLS][2][4];
            fx_u32 part[CELLS][4];
#if MASK
            fx_u32 hidden[CELLS] = {0};
#endif
            CLEAR(sum, 2)
            PRODUCT(sum, 0, left, D, AIM(D) + read + n * (16 * STRIDE(D)))
            FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < 2; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++) {
                        const fx_u32 c = n * 16 + y * 8 + i % 2;
                        sum[m][y][i] =
                            fx_exp2(FX_MAD(sum[m][y][i], log2_scale, -its[c] * LOG2_OF_E));
                    }
#if MASK
            FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < 2; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++) {
                        const fx_i32 c = (fx_i32)(n * 16 + y * 8 + i % 2);
                        const fx_int key = own + (fx_int)(m * 16 + lane / 4 + i / 2 * 8);
                        const fx_int query = at + (fx_int)(lane % 4 * 2) + (fx_int)c;
                        if (c >= end || later + (fx_i32)(m * 16 + i / 2 * 8) > c ||
                            (key < KEYS && UNSEEN(key, query))) {
                            // 0, or NaN where the logarithm is −∞
                            sum[m][y][i] = its[c] - its[c];
                            hidden[m] |= 1u << (y * 4 + i);
                        }
                    }
#else
            if (masked) FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < 2; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++)
                        if ((fx_i32)(n * 16 + y * 8 + i % 2) >= end ||
                            later + (fx_i32)(m * 16 + i / 2 * 8) > (fx_i32)(n * 16 + y * 8 + i % 2))
                            sum[m][y][i] = 0;
#endif
            AS_LEFT(part, sum, 0)
            PRODUCT_ACROSS(out_v, part, E, AIM_ACROSS(E) + read + BYTES(D) + n * (16 * STRIDE(E)))
            CLEAR(change, 2)
            PRODUCT(change, 0, left_v, E, AIM(E) + read + BYTES(D) + n * (16 * STRIDE(E)))
            FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < 2; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++)
                        sum[m][y][i] *= change[m][y][i] - its[TILE + n * 16 + y * 8 + i % 2];
#if MASK
            FX_UNROLL for (fx_u32 m = 0; m < CELLS; m++)
                FX_UNROLL for (fx_u32 y = 0; y < 2; y++)
                    FX_UNROLL for (fx_u32 i = 0; i < 4; i++)
                        if (hidden[m] >> (y * 4 + i) & 1u) sum[m][y][i] = 0;
#endif
            AS_LEFT(part, sum, 0)
            PRODUCT_ACROSS(out, part, D, AIM_ACROSS(D) + read + n * (16 * STRIDE(D)))
        }
        }
        read = STAGE - read;
    }
#define WIDTH (HEADS * (FEATURES + VALUE_FEATURES))
    FX_GLOBAL fx_u16 *x = x_all + batch * KEYS * WIDTH;
    FX_GLOBAL fx_u16 *x_k = x + head * FEATURES, *x_v = x + HEADS * FEATURES + head * VALUE_FEATURES;
    STORE(x_k, out, D, FEATURES, WIDTH, KEYS, SCALE)
    STORE(x_v, out_v, E, VALUE_FEATURES, WIDTH, KEYS, 1)
