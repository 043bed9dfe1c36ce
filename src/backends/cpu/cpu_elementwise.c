/* cpu_elementwise.c: the tile interpreter: runs an elementwise step's register program.
 *
 * The output's elements are taken in memory order, 256 at a time. For each tile every instruction
 * is one call of a loop over the whole tile (cpu_isa_ops.h), so the cost of interpreting is shared
 * by 256 elements and intermediate results never leave the first-level cache. An input is read
 * where it lies when it is dense, is spread over one tile once when it is a scalar, and else is
 * gathered into a tile by a walk that continues from tile to tile. Tiles of results are shared by
 * liveness. Float16 and BFloat16 live in registers as Float32 values that have been rounded to 16
 * bits after each instruction. The last instruction writes to the output, which may be the memory
 * of a dense input: a tile's input is read before the same tile is written.
 */
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    MAX_REGISTERS = 256, /* src is a byte */
    STACK_SLOTS = 16,
    SLOT_BYTES = FXI_TILE * 8 + 64 /* an odd number of cache lines: tiles do not share cache sets */
};

typedef enum source { SOURCE_DIRECT, SOURCE_SPLAT, SOURCE_WALK, SOURCE_RESULT } source;

typedef struct reg {
    const char *base; /* DIRECT, WALK: the input's memory */
    void *tile;       /* the tile that holds the register; NULL while it is read where it lies */
    fxi_walk *walk;
    uint8_t dtype, size, kind; /* size: of an element in memory */
    int16_t slot, last_use;
} reg;

typedef struct machine {
    const fxi_step *step;
    const fxi_simd *simd;
    fxi_run *run;
    char *out;
    fxi_tile_sink sink; /* takes the tiles instead of `out`; NULL */
    void *user;
    int64_t n; /* elements in all */
    int nregs, nslots, nwalks;
    char *slots, *heap;
    fxi_walk *walks;
    reg regs[MAX_REGISTERS];
    bool busy[MAX_REGISTERS];
} machine;

static bool half(int dtype)
{
    return fxi_cpu_is_half(dtype);
}

/* ---- registers and tiles --------------------------------------------------------------------- */
static bool is_scalar(const fxi_tensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] != 1 && t->stride[d] != 0)
            return false;
    return true;
}

static source source_of(const fxi_tensor *t)
{
    return is_scalar(t) ? SOURCE_SPLAT : fxi_cpu_is_dense(t) ? SOURCE_DIRECT : SOURCE_WALK;
}

static int16_t take_slot(machine *m)
{
    int k = 0;
    while (m->busy[k])
        k++;
    m->busy[k] = true;
    m->nslots = k + 1 > m->nslots ? k + 1 : m->nslots;
    return (int16_t)k;
}

static void find_last_uses(machine *m)
{
    for (int k = 0; k < m->step->ninstr; k++)
        for (int s = 0; s < m->step->program[k].nsrc; s++)
            m->regs[m->step->program[k].src[s]].last_use = (int16_t)k;
    for (int k = 0; k < m->step->nmore; k++) /* kept to the end of the tile */
        m->regs[m->step->more_reg[k]].last_use = (int16_t)m->step->ninstr;
}

static void describe_inputs(machine *m, const void *const *in)
{
    for (int k = 0; k < m->step->nin; k++) {
        const fxi_tensor *t = &m->step->in[k];
        reg *r = &m->regs[k];
        *r = (reg){.base = in[k],
                   .dtype = t->dtype,
                   .size = (uint8_t)fxi_cpu_size(t->dtype),
                   .kind = (uint8_t)source_of(t),
                   .slot = -1,
                   .last_use = -1};
        m->nwalks += r->kind == SOURCE_WALK;
    }
}

/* Gives every register that needs one a tile. A result's tile is taken before those of its
 * last-used operands are given back: loops that change the element size cannot work in place. */
static void assign_slots(machine *m)
{
    const fxi_step *step = m->step;
    for (int k = 0; k < step->nin; k++)
        if (m->regs[k].kind != SOURCE_DIRECT || half(m->regs[k].dtype))
            m->regs[k].slot = take_slot(m);
    for (int k = 0; k < step->ninstr; k++) {
        const fxi_instr *ins = &step->program[k];
        reg *r = &m->regs[step->nin + k];
        const bool last = k + 1 == step->ninstr;
        r->slot = last && !half(ins->dtype) ? -1 : take_slot(m);
        for (int s = 0; s < ins->nsrc; s++) {
            const reg *a = &m->regs[ins->src[s]];
            if (a->slot >= 0 && a->kind != SOURCE_SPLAT && a->last_use == k)
                m->busy[a->slot] = false;
        }
        if (r->last_use < k && r->slot >= 0) /* a result that nothing reads */
            m->busy[r->slot] = false;
    }
}

static void describe_results(machine *m)
{
    for (int k = 0; k < m->step->ninstr; k++)
        m->regs[m->step->nin + k] = (reg){
            .dtype = m->step->program[k].dtype, .kind = SOURCE_RESULT, .slot = -1, .last_use = -1};
}

static fx_status take_memory(machine *m, char *stack, size_t stack_bytes)
{
    const size_t tiles = (size_t)m->nslots * SLOT_BYTES;
    const size_t bytes = tiles + (size_t)m->nwalks * sizeof(fxi_walk);
    m->slots = stack;
    if (bytes > stack_bytes) {
        m->heap = fxi_aligned(64, bytes);
        if (!m->heap)
            return fxi_cpu_no_memory(m->run, m->step);
        m->slots = m->heap;
    }
    m->walks = (fxi_walk *)(void *)(m->slots + tiles);
    return FX_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */
static void convert_half(const machine *m, const reg *r, const void *from, int n)
{
    const void *const s[] = {from};
    m->simd->load[r->dtype == FX_DTYPE_BF16](r->tile, s, n, 0);
}

/* Fills the tile of a scalar with its value. */
static void splat(const machine *m, const reg *r, int n)
{
    if (!half(r->dtype)) {
        fxi_copy_strided(r->tile, r->base, n, 0, r->size);
        return;
    }
    convert_half(m, r, r->base, 1);
    float value;
    memcpy(&value, r->tile, sizeof value);
    fxi_copy_strided(r->tile, &value, n, 0, sizeof value);
}

static void prepare_inputs(machine *m)
{
    const int tile = m->n < FXI_TILE ? (int)m->n : FXI_TILE;
    int walks = 0;
    for (int k = 0; k < m->nregs; k++) {
        reg *r = &m->regs[k];
        r->tile = r->slot >= 0 ? m->slots + (size_t)r->slot * SLOT_BYTES : NULL;
        if (k >= m->step->nin)
            continue;
        const fxi_tensor *t = &m->step->in[k];
        if (r->kind == SOURCE_SPLAT)
            splat(m, r, tile);
        if (r->kind == SOURCE_WALK) {
            r->walk = &m->walks[walks++];
            fxi_walk_init(r->walk, t->ndim, t->shape, t->stride);
        }
    }
}

static void load_inputs(machine *m, int64_t at, int n)
{
    uint16_t halves[FXI_TILE];
    for (int k = 0; k < m->step->nin; k++) {
        reg *r = &m->regs[k];
        const bool h = half(r->dtype);
        if (r->kind == SOURCE_WALK)
            fxi_walk_read(r->walk, r->base, r->size, h ? halves : r->tile, n);
        if (h && r->kind == SOURCE_WALK)
            convert_half(m, r, halves, n);
        else if (h && r->kind == SOURCE_DIRECT)
            convert_half(m, r, r->base + at * r->size, n);
    }
}

/* ---- instructions ---------------------------------------------------------------------------- */
/* The loop of an instruction; NULL when the op has no meaning for the type. */
static fxi_tile_fn loop_of(const fxi_simd *simd, const fxi_instr *ins)
{
    const int to = fxi_compute_type(ins->dtype), from = fxi_compute_type(ins->from);
    if (ins->op == FXI_OP_CAST)
        return half(ins->dtype) ? simd->cast_odd[from] : simd->cast[from][to];
    const bool compares = ins->op == FXI_OP_LT || ins->op == FXI_OP_LE || ins->op == FXI_OP_EQ ||
                          ins->op == FXI_OP_NE;
    return simd->ops[ins->op][compares ? from : to];
}

static fx_status run_tile(const machine *m, int64_t at, int n, char *out)
{
    const fxi_step *step = m->step;
    for (int k = 0; k < step->ninstr; k++) {
        const fxi_instr *ins = &step->program[k];
        const reg *r = &m->regs[step->nin + k];
        void *to = r->tile ? r->tile : out;
        const void *src[3];
        for (int s = 0; s < ins->nsrc; s++) {
            const reg *a = &m->regs[ins->src[s]];
            src[s] = a->tile ? a->tile : a->base + at * a->size;
        }
        const fxi_tile_fn loop = loop_of(m->simd, ins);
        if (!loop)
            return fxi_cpu_no_dtype(m->run, step, ins->dtype);
        loop(to, src, n, ins->attr);
        const void *const result[] = {to};
        if (half(ins->dtype) && k + 1 < step->ninstr)
            m->simd->round[ins->dtype == FX_DTYPE_BF16](to, result, n, 0);
        else if (half(ins->dtype))
            m->simd->store[ins->dtype == FX_DTYPE_BF16](out, result, n, 0);
    }
    return FX_OK;
}

/* Further outputs are written when the tile is done: they may overwrite the memory of an input. */
static void store_more(const machine *m, int64_t at, int n)
{
    for (int k = 0; k < m->step->nmore; k++) {
        const reg *r = &m->regs[m->step->more_reg[k]];
        const size_t size = fxi_cpu_size(r->dtype);
        char *to = (char *)m->run->more[k] + at * (int64_t)size;
        const void *const from[] = {r->tile};
        if (half(r->dtype))
            m->simd->store[r->dtype == FX_DTYPE_BF16](to, from, n, 0);
        else
            memcpy(to, r->tile, (size_t)n * size);
    }
}

static fx_status run_tiles(machine *m)
{
    const int64_t size = (int64_t)fxi_cpu_size(m->step->program[m->step->ninstr - 1].dtype);
    _Alignas(64) char tile[FXI_TILE * 8];
    fx_status status = FX_OK;
    prepare_inputs(m);
    for (int64_t at = 0; at < m->n && !status;) {
        const int64_t left = m->n - at;
        const int n = left < FXI_TILE ? (int)left : FXI_TILE;
        char *out = m->sink ? tile : m->out + at * size;
        load_inputs(m, at, n);
        status = run_tile(m, at, n, out);
        store_more(m, at, n);
        if (m->sink && !status)
            m->sink(m->user, tile, at, n);
        at += n;
    }
    return status;
}

static fx_status run_program(machine *m, const void *const *in)
{
    _Alignas(64) char stack[STACK_SLOTS * SLOT_BYTES];
    m->simd = fxi_cpu_simd();
    m->nregs = m->step->nin + m->step->ninstr;
    if (m->n == 0)
        return FX_OK;
    if (m->nregs > MAX_REGISTERS || m->step->ninstr < 1)
        return fxi_cpu_fail(m->run, FX_STATUS_INTERNAL, m->step, "a program of %d registers",
                            m->nregs);
    describe_inputs(m, in);
    describe_results(m);
    find_last_uses(m);
    assign_slots(m);
    fx_status status = take_memory(m, stack, sizeof stack);
    if (!status)
        status = run_tiles(m);
    fxi_free(m->heap);
    return status;
}

static void machine_init(machine *m, const fxi_step *step, fxi_run *run, int64_t length)
{
    memset(m, 0, offsetof(machine, regs));
    memset(m->busy, 0, sizeof m->busy);
    m->step = step;
    m->run = run;
    m->n = length;
}

fx_status fxi_cpu_elementwise(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    machine m;
    machine_init(&m, step, run, fxi_tensor_length(&step->out));
    m.out = out;
    return run_program(&m, in);
}

fx_status fxi_cpu_program(const fxi_step *step, const void *const *in, fxi_run *run,
                          fxi_tile_sink sink, void *user)
{
    machine m;
    machine_init(&m, step, run, fxi_tensor_length(&step->space));
    m.sink = sink;
    m.user = user;
    return run_program(&m, in);
}

fx_status fxi_cpu_epilogue(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    enum { MOST = 8 };
    fxi_tensor tensors[MOST];
    const void *ptrs[MOST];
    fxi_step program = *step;
    program.in = tensors;
    program.nin = step->nin - 1;
    if (program.nin > MOST)
        return fxi_cpu_fail(run, FX_STATUS_INTERNAL, step, "an epilogue of %d inputs", program.nin);
    for (int k = 0; k < program.nin; k++) {
        tensors[k] = k ? step->in[k + 1] : step->out;
        ptrs[k] = k ? in[k + 1] : out;
    }
    return fxi_cpu_elementwise(&program, ptrs, out, run);
}
