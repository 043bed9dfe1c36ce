/* sim_shim.h: put before a kernel's text, so that the host's C++ compiler can compile CUDA and HIP.
 * The names are those that NVRTC and hipRTC define without a header. No header is included, which
 * would cost more than compiling the kernel. */
struct sim_index {
    unsigned x, y, z;
};
struct sim_calls {
    void (*barrier)(void);
    void (*exchange)(void *value, int bytes, int lane);
    const void *(*share)(const void *value, int bytes);
};
extern "C" {
__attribute__((visibility("default"))) sim_index sim_positions[4];
__attribute__((visibility("default"))) const sim_calls *sim_functions;
}

struct __attribute__((aligned(16), may_alias)) uint4 {
    unsigned x, y, z, w;
};
struct __attribute__((aligned(8), may_alias)) uint2 {
    unsigned x, y;
};

/* ---- CUDA ------------------------------------------------------------------------------------ */
#define __global__
#define __device__
#define __shared__              static __attribute__((section(SIM_SHARED)))
#define FX_LOCAL_ASKED(T, s, n) __shared__ T s[n] __attribute__((aligned(16)))
#define shared                  section(SIM_SHARED) /* HIP: static __attribute__((shared)) */
#define __forceinline__         inline
#define __launch_bounds__(...)
#define threadIdx        (sim_positions[0])
#define blockIdx         (sim_positions[1])
#define blockDim         (sim_positions[2])
#define gridDim          (sim_positions[3])
#define __syncthreads()  (sim_functions->barrier())
#define __syncwarp(mask) ((void)sim_exchange(0, sim_lane()))

static inline int sim_lane()
{
    return (int)sim_positions[0].x & (SIM_WARP - 1);
}
template <class T> static inline T sim_exchange(T value, int lane)
{
    sim_functions->exchange(&value, (int)sizeof value, lane);
    return value;
}
template <class T> static inline T __shfl_sync(unsigned, T value, int lane, int width = SIM_WARP)
{
    return sim_exchange(value, (sim_lane() & ~(width - 1)) | (lane & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask, int = SIM_WARP)
{
    return sim_exchange(value, sim_lane() ^ mask);
}
template <class T>
static inline T __shfl_down_sync(unsigned, T value, unsigned by, int width = SIM_WARP)
{
    const int from = sim_lane() + (int)by, end = (sim_lane() | (width - 1)) + 1;
    return sim_exchange(value, from < end ? from : sim_lane());
}
template <class T>
static inline T __shfl_up_sync(unsigned, T value, unsigned by, int width = SIM_WARP)
{
    const int from = sim_lane() - (int)by, first = sim_lane() & ~(width - 1);
    return sim_exchange(value, from >= first ? from : sim_lane());
}
template <class To, class From> static inline To sim_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "bits of another size");
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x)
{
    return sim_bits<unsigned>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return sim_bits<float>(x);
}
static inline int __float_as_int(float x)
{
    return sim_bits<int>(x);
}
static inline float __int_as_float(int x)
{
    return sim_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return sim_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return sim_bits<double>(x);
}
/* Work-items run one after another, so plain loads and stores are atomic. */
template <class T, class U> static inline T atomicCAS(T *p, U old, U fresh)
{
    const T was = *p;
    if (was == (T)old)
        *p = (T)fresh;
    return was;
}
template <class T, class U> static inline T atomicAdd(T *p, U x)
{
    const T was = *p;
    *p = (T)(was + (T)x);
    return was;
}

/* A text declares AMD's names again, in its own namespace. The compiler does not see that a call of
 * that declaration uses the definition here. */
#ifdef SIM_AMD
#define SIM_OCML extern "C" inline __attribute__((used))
#else
#define SIM_OCML extern "C" inline
#endif
#define SIM_FUNCTION(name)                                                                         \
    extern "C" float name##f(float);                                                               \
    extern "C" double name(double);                                                                \
    SIM_OCML float __ocml_##name##_f32(float x)                                                    \
    {                                                                                              \
        return __builtin_##name##f(x);                                                             \
    }                                                                                              \
    SIM_OCML double __ocml_##name##_f64(double x)                                                  \
    {                                                                                              \
        return __builtin_##name(x);                                                                \
    }
SIM_FUNCTION(exp)
SIM_FUNCTION(expm1)
SIM_FUNCTION(log)
SIM_FUNCTION(log1p)
SIM_FUNCTION(sqrt)
SIM_FUNCTION(sin)
SIM_FUNCTION(cos)
SIM_FUNCTION(tanh)
SIM_FUNCTION(erf)
SIM_FUNCTION(floor)
SIM_FUNCTION(fabs)
#define SIM_FUNCTION2(name)                                                                        \
    extern "C" float name##f(float, float);                                                        \
    extern "C" double name(double, double);                                                        \
    SIM_OCML float __ocml_##name##_f32(float x, float y)                                           \
    {                                                                                              \
        return __builtin_##name##f(x, y);                                                          \
    }                                                                                              \
    SIM_OCML double __ocml_##name##_f64(double x, double y)                                        \
    {                                                                                              \
        return __builtin_##name(x, y);                                                             \
    }
SIM_FUNCTION2(pow)
SIM_FUNCTION2(atan2)
SIM_FUNCTION2(fmod)
static inline float sim_fma(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
static inline double sim_fma(double x, double y, double z)
{
    return __builtin_fma(x, y, z);
}
#define fma  sim_fma
#define fmaf sim_fma

/* ---- HIP ------------------------------------------------------------------------------------- */
#define __builtin_amdgcn_fence(order, scope) ((void)0)
#define __builtin_amdgcn_s_barrier()         (sim_functions->barrier())
#define __builtin_amdgcn_workitem_id_x()     (sim_positions[0].x)
#define __builtin_amdgcn_workgroup_id_x()    (sim_positions[1].x)
#define __builtin_amdgcn_workgroup_id_y()    (sim_positions[1].y)
#define __builtin_amdgcn_workgroup_id_z()    (sim_positions[1].z)
/* The lane is given in bytes. */
#define __builtin_amdgcn_ds_bpermute(lane, x) sim_exchange((int)(x), ((lane) >> 2) & (SIM_WARP - 1))

/* ---- products of small matrices -------------------------------------------------------------- */
/* c += a · b by all work-items of a warp. Each gives its parts of a and b. The functions a and b of
 * a layout return which work-item has an element, and as which of its items, as the vendor's manual
 * describes it. */
struct sim_owner {
    int lane, element;
};
static inline float sim_wide(_Float16 x)
{
    return (float)x;
}
static inline float sim_wide(short x) /* bf16 */
{
    return sim_bits<float>((unsigned)(unsigned short)x << 16);
}
template <class L, class T> static inline void sim_cell(float *c, const void *a, const void *b)
{
    struct parts {
        T a[L::parts_a], b[L::parts_b];
    } own;
    __builtin_memcpy(own.a, a, sizeof own.a);
    __builtin_memcpy(own.b, b, sizeof own.b);
    const parts *all = (const parts *)sim_functions->share(&own, (int)sizeof own);
    for (int i = 0; i < L::sums; i++) {
        const int row = L::row(sim_lane(), i), column = L::column(sim_lane(), i);
        for (int k = 0; k < L::terms; k++) {
            const sim_owner x = L::a(row, k), y = L::b(k, column);
            c[i] += sim_wide(all[x.lane].a[x.element]) * sim_wide(all[y.lane].b[y.element]);
        }
    }
}
/* PTX ISA, mma.m16n8k16: groupID = lane >> 2, threadID_in_group = lane % 4. An element ai of A has
 * the row groupID for i < 2 and 4 ≤ i < 6, else groupID + 8, and the column threadID_in_group · 2 +
 * (i & 1), for i ≥ 4 plus 8. bi: row threadID_in_group · 2 + (i & 1), for i ≥ 2 plus 8; column
 * groupID. ci: row groupID, for i ≥ 2 plus 8; column threadID_in_group · 2 + (i & 1). */
struct sim_m16n8k16 {
    static const int terms = 16, parts_a = 8, parts_b = 4, sums = 4;
    static sim_owner a(int row, int k)
    {
        return {row % 8 * 4 + k % 8 / 2, k % 2 + row / 8 * 2 + k / 8 * 4};
    }
    static sim_owner b(int k, int column) { return {column * 4 + k % 8 / 2, k % 2 + k / 8 * 2}; }
    static int row(int lane, int i) { return (lane >> 2) + (i < 2 ? 0 : 8); }
    static int column(int lane, int i) { return lane % 4 * 2 + (i & 1); }
};
/* PTX ISA, mma.m16n8k8 of 16-bit numbers: ai has the row groupID for i < 2, else groupID + 8, and
 * the column threadID_in_group · 2 + (i & 1). bi: row threadID_in_group · 2 + i; column groupID.
 * ci: as above. */
struct sim_m16n8k8 {
    static const int terms = 8, parts_a = 4, parts_b = 2, sums = 4;
    static sim_owner a(int row, int k) { return {row % 8 * 4 + k / 2, k % 2 + row / 8 * 2}; }
    static sim_owner b(int k, int column) { return {column * 4 + k / 2, k % 2}; }
    static int row(int lane, int i) { return (lane >> 2) + (i < 2 ? 0 : 8); }
    static int column(int lane, int i) { return lane % 4 * 2 + (i & 1); }
};
#ifndef SIM_AMD
typedef _Float16 sim_f16;
typedef short sim_bf16;
#if SIM_ARCH >= 80
#define FX_MMA(type, c, a, b) sim_cell<sim_m16n8k16, sim_##type>(c, a, b)
#elif SIM_ARCH == 75
#define FX_MMA_HALF(c, a, b) sim_cell<sim_m16n8k8, sim_f16>(c, a, b)
#endif
#endif

/* ---- asynchronous copies and ldmatrix -------------------------------------------------------- */
/* PTX ISA, cp.async: the copies are only known to be complete after the wait for their set. Here
 * they are made during that wait, so that a kernel that reads too early computes other numbers. */
#if !defined SIM_AMD && SIM_ARCH >= 80
#define FX_ASYNC
typedef unsigned long long fx_near;
struct sim_copies {
    int n, closed;
    struct {
        fx_near to;
        const void *from;
        unsigned bytes;
        int set;
    } copy[64];
};
static sim_copies sim_pending[1024];
static inline void sim_require(bool holds)
{
    if (!holds)
        __builtin_trap();
}
static inline fx_near fx_near_of(const void *p)
{
    return (fx_near)p;
}
static inline void fx_async(fx_near to, const void *from, unsigned bytes)
{
    sim_copies *p = &sim_pending[sim_positions[0].x];
    sim_require(p->n < 64 && bytes <= 16 && to % 16 == 0 && (fx_near)from % 16 == 0);
    p->copy[p->n++] = {to, from, bytes, p->closed};
}
#define FX_ASYNC_CLOSE (sim_pending[sim_positions[0].x].closed++)
static inline void FX_ASYNC_WAIT(int sets)
{
    sim_copies *p = &sim_pending[sim_positions[0].x];
    int left = 0;
    for (int k = 0; k < p->n; k++) {
        if (p->copy[k].set >= p->closed - sets) {
            p->copy[left++] = p->copy[k];
            continue;
        }
        __builtin_memset((void *)p->copy[k].to, 0, 16);
        __builtin_memcpy((void *)p->copy[k].to, p->copy[k].from, p->copy[k].bytes);
    }
    p->n = left;
}
/* PTX ISA, ldmatrix.x4: work-item 8 · i + r gives the address of row r of matrix i. A work-item
 * gets of each matrix the elements of row lane / 4 in the columns lane % 4 · 2 and the next; with
 * .trans the rows are columns. */
static inline void fx_parts(unsigned *p, fx_near at)
{
    sim_require(at % 16 == 0);
    const fx_near *all = (const fx_near *)sim_functions->share(&at, (int)sizeof at);
    for (int i = 0; i < 4; i++)
        __builtin_memcpy(&p[i], (const unsigned *)all[8 * i + sim_lane() / 4] + sim_lane() % 4, 4);
}
static inline void fx_parts_across(unsigned *p, fx_near at)
{
    sim_require(at % 16 == 0);
    const fx_near *all = (const fx_near *)sim_functions->share(&at, (int)sizeof at);
    for (int i = 0; i < 4; i++) {
        const fx_near *row = all + 8 * i + sim_lane() % 4 * 2;
        unsigned short both[2];
        for (int k = 0; k < 2; k++)
            __builtin_memcpy(&both[k], (const short *)row[k] + sim_lane() / 4, 2);
        __builtin_memcpy(&p[i], both, 4);
    }
}
#endif

/* AMD CDNA3 ISA, v_mfma_f32_16x16x16_f16 and _bf16: A[i][k] has item k % 4 of lane i + 16 · (k /
 * 4), B[k][j] item k % 4 of lane j + 16 · (k / 4), D[i][j] item i % 4 of lane j + 16 · (i / 4). */
struct sim_mfma {
    static const int terms = 16, parts_a = 4, parts_b = 4, sums = 4;
    static sim_owner a(int row, int k) { return {row + 16 * (k / 4), k % 4}; }
    static sim_owner b(int k, int column) { return {column + 16 * (k / 4), k % 4}; }
    static int row(int lane, int i) { return 4 * (lane / 16) + i; }
    static int column(int lane, int) { return lane % 16; }
};
/* AMD RDNA3 ISA, v_wmma_f32_16x16x16_f16 and _bf16 of 32 lanes: lane l and lane l + 16 both have
 * row l of A and column l of B. Of D, item i of lanes 0–15 is in row 2 · i, of lanes 16–31 in row 2
 * · i + 1, and the column is l % 16. The simulator reads the parts of the upper lanes, so that a
 * kernel which fills only the lower lanes fails. */
struct sim_wmma {
    static const int terms = 16, parts_a = 16, parts_b = 16, sums = 8;
    static sim_owner a(int row, int k) { return {row + 16 * (k & 1), k}; }
    static sim_owner b(int k, int column) { return {column + 16 * (k & 1), k}; }
    static int row(int lane, int i) { return 2 * i + lane / 16; }
    static int column(int lane, int) { return lane % 16; }
};
template <class L, class T, class V, class C> static inline C sim_cells(V a, V b, C c)
{
    float sums[L::sums];
    static_assert(sizeof sums == sizeof c, "sums of another number");
    __builtin_memcpy(sums, &c, sizeof sums);
    sim_cell<L, T>(sums, &a, &b);
    __builtin_memcpy(&c, sums, sizeof sums);
    return c;
}
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z)                                    \
    sim_cells<sim_mfma, _Float16>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z)                                \
    sim_cells<sim_mfma, short>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)  sim_cells<sim_wmma, _Float16>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) sim_cells<sim_wmma, short>(a, b, c)

/* ---- what the simulator calls (sim_build.c adds SIM_KERNEL for each kernel, SIM_TEXT at the end)
 */
template <class T> struct sim_size {
    static const int value = (int)sizeof(T);
};
template <class T> struct sim_size<T *> {
    static const int value = -(int)sizeof(T *);
};
template <int...> struct sim_numbers {
};
template <int n, int... rest> struct sim_count : sim_count<n - 1, n - 1, rest...> {
};
template <int... rest> struct sim_count<0, rest...> {
    typedef sim_numbers<rest...> type;
};
template <class T> struct sim_plain {
    typedef T type;
};
template <class T> struct sim_plain<const T> {
    typedef T type;
};
template <class... A, int... k>
static inline void sim_unpack(void (*f)(A...), void *const *a, sim_numbers<k...>)
{
    f(*(typename sim_plain<A>::type *)a[k]...);
}
template <class... A> static inline void sim_call(void (*f)(A...), void *const *a)
{
    sim_unpack(f, a, typename sim_count<(int)sizeof...(A)>::type());
}
template <class... A> static const int *sim_sizes_of(void (*)(A...))
{
    static const int sizes[] = {sim_size<A>::value..., 0};
    return sizes;
}
#define SIM_KERNEL(name, id)                                                                       \
    extern "C" __attribute__((visibility("default"))) void sim_enter_##name##_##id(void *const *a) \
    {                                                                                              \
        sim_call(name, a);                                                                         \
    }                                                                                              \
    extern "C" __attribute__((visibility("default"))) const int *sim_sizes_##name##_##id(void)     \
    {                                                                                              \
        return sim_sizes_of(name);                                                                 \
    }
/* The first and last byte of the memory that groups share; the linker makes them. */
#define SIM_TEXT(id)                                                                               \
    extern "C" {                                                                                   \
    extern char __start_sim_shared_##id[] __attribute__((weak, visibility("hidden")));             \
    extern char __stop_sim_shared_##id[] __attribute__((weak, visibility("hidden")));              \
    __attribute__((visibility("default"))) char *sim_shared_from_##id = __start_sim_shared_##id;   \
    __attribute__((visibility("default"))) char *sim_shared_to_##id = __stop_sim_shared_##id;      \
    }
