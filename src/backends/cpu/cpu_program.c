/* cpu_program.c: the tile interpreter: makes register programs and runs them.
 *
 * Elements are taken in memory order, 256 at a time (a tile). For each tile every instruction is
 * one call of a loop over the whole tile (cpu_isa_ops.h). So 256 elements share the cost of
 * interpreting, and intermediate results never leave the first-level cache. There is no code
 * generation, which would need a compiler where the program runs: in a prototype, a chain of
 * operations on 10,000 elements took 8.2 µs in tiles and 6.8 as one loop written by hand. Two
 * additions, subtractions or products of Float32 are one call if the second alone reads the result
 * of the first.
 *
 * Calls read and write numbered locations: operands, then tiles of scratch, then outputs. A run is
 * a table of these addresses. Dense operands and outputs advance from tile to tile. Some loops read
 * a scalar next to a vector; for other loops it is spread over a tile. An operand that repeats
 * after a short while (a bias) is laid out once, a tile longer than its period. An operand that is
 * the same for a stretch of neighbouring elements (a value for each channel of an image) is a
 * scalar that changes from stretch to stretch, and tiles end where stretches end. They also end
 * where the rows of a slice end, which are then read in their own memory. Any other operand is
 * gathered into a tile by a walk. The tile of a result is reused after the last read of the
 * result. If 256 elements of each live value would overflow the scratch memory, the program uses
 * shorter tiles.
 *
 * Float16 and BFloat16 are Float32 values in tiles, rounded to 16 bits after each instruction;
 * loading and storing them are calls like all others.
 *
 * An output is computed directly in its memory, with three exceptions: 16-bit outputs, outputs that
 * bypass the caches, and outputs over an operand that a later instruction still reads. These are
 * computed in a tile and stored when the tile is done. An output that bypasses the caches needs no
 * tile if the last call computes it and has a loop for that (fxi_simd.streamed).
 */
#include "cpu_program.h"
#include "cpu_parallel.h"
#include "cpu_task.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    MAX_REGISTERS = FXI_TASK_REGISTERS,
    /* Locations are numbered by a byte too, so that a call is small: the inner loop reads one for
     * each instruction and tile. */
    MAX_LOCATIONS = 256,
    MAX_TILES =
        3 * FXI_PROGRAM_OPERANDS + MAX_REGISTERS, /* the most tiles that a program may need */
    /* About a first-level cache. The scratch is on the stack, so that a run allocates nothing. */
    SCRATCH_BYTES = 48 * 1024,
    /* One vector of Float32 with AVX-512: shorter tiles would leave lanes idle. */
    LEAST_TILE = 16,
    /* The time of gathering an operand, in calls of a loop: GATHER_TILE for each tile, and
     * GATHER_STRETCH for each stretch in it. */
    GATHER_TILE = 8,
    GATHER_STRETCH = 2,
    /* Elements of a row: gathering shorter rows takes less time than more calls for shorter tiles.
     */
    LEAST_TOGETHER = 64,
};

typedef struct call {
    fxi_tile_fn loop;
    int64_t attr;
    uint8_t to, src[3];
    int16_t n; /* in `first` and `each`: the most elements */
} call;

/* A strided operand. `to` is a tile for its elements, which are gathered into it where they are not
 * neighbours in memory. */
typedef struct load {
    fxi_walk walk;
    int64_t period; /* length after which the operand repeats; it is laid out once. 0: it does not
                       repeat in a tile */
    uint8_t in, to, size;
    bool dense; /* the elements of a period are neighbours */
} load;

/* An operand that is a scalar for each stretch of elements. */
typedef struct stretch_operand {
    fxi_walk walk; /* over the stretches */
    uint8_t in, size;
} stretch_operand;

typedef struct output {
    uint8_t location, size;
    uint32_t read_later; /* bits: operands that are read after the output's instruction */
} output;

typedef struct moving {
    uint8_t location, size;
} moving;

struct fxi_program {
    int32_t nin, ntiles, nout, tile;
    int32_t tile_bytes; /* an odd number of cache lines, so that tiles do not share cache sets */
    int32_t nfirst, neach, ncalls, nloads, nstretches, nmoving;
    int64_t length;             /* of the stretches, at whose ends tiles end; 0: there are none */
    call *first, *each, *calls; /* called once, for each stretch, for each tile */
    load *loads;
    stretch_operand *stretches;
    moving *moving; /* dense operands */
    output out[FXI_PROGRAM_OUTPUTS];
    double cost; /* nanoseconds an element, for one thread */
};

static bool half(int dtype)
{
    return fxi_cpu_is_half(dtype);
}

/* ---- making: registers and locations --------------------------------------------------------- */
enum { NOWHERE = -1 };

/* Where a register's value is: as a vector, and for scalars also as a single value. */
typedef struct register_location {
    int16_t vector, scalar; /* numbers of locations */
    int16_t tile;           /* the vector's tile, free again after the last use; or NOWHERE */
    int16_t raw; /* the tile of its 16-bit elements, until all operands are loaded; or NOWHERE */
    int16_t last_use;
    uint8_t dtype;
} register_location;

typedef struct builder {
    const fxi_program_spec *spec;
    const fxi_simd *simd;
    fxi_program *p;
    int nregs, ntasks;
    fxi_cpu_task tasks[MAX_REGISTERS];
    register_location regs[MAX_REGISTERS];
    bool busy[MAX_TILES];
} builder;

static int tile_location(const builder *m, int number)
{
    return m->spec->nin + number;
}

/* Allocates `count` neighbouring tiles and returns the first. It takes the lowest free ones, so
 * that few tiles are in use. */
static int16_t take_tiles(builder *m, int count)
{
    int k = 0;
    for (int i = 0; i < count; i++)
        /* Starts again after the busy tile. */
        if (m->busy[k + i]) {
            k += i + 1;
            i = -1;
        }
    for (int i = 0; i < count; i++)
        m->busy[k + i] = true;
    if (k + count > m->p->ntiles)
        m->p->ntiles = k + count;
    return (int16_t)k;
}

/* A register can be one output only (fxi_program_spec.out). */
static int output_of(const builder *m, int r)
{
    for (int k = 0; k < m->spec->nout; k++)
        if (m->spec->out[k] == r)
            return k;
    return -1;
}

/* Without last uses, each task would need a tile of its own, and long programs would leave the
 * first-level cache. */
static void find_last_uses(builder *m)
{
    const fxi_program_spec *s = m->spec;
    for (int r = 0; r < m->nregs; r++)
        m->regs[r] = (register_location){NOWHERE, NOWHERE, NOWHERE, NOWHERE, .last_use = -1};
    for (int k = 0; k < m->ntasks; k++)
        for (int i = 0; i < m->tasks[k].nreads; i++)
            m->regs[m->tasks[k].reads[i]].last_use = (int16_t)k;
    for (int k = 0; k < s->nout; k++) /* outputs are kept to the end of the tile */
        m->regs[s->out[k]].last_use = (int16_t)m->ntasks;
}

static void add_call(builder *m, fxi_tile_fn loop, int to, int from)
{
    m->p->calls[m->p->ncalls++] =
        (call){.loop = loop, .to = (uint8_t)to, .src = {(uint8_t)from, 0, 0}};
}

/* ---- making: stretches ----------------------------------------------------------------------- */
/* The walk over operand k; false if it is dense or a scalar. */
static bool is_walked(const fxi_program_spec *s, int k, fxi_walk *w)
{
    const fx_tensor *t = &s->in[k];
    if (fxi_cpu_is_scalar(t) || fxi_is_dense(t->ndim, t->shape, t->stride))
        return false;
    fxi_walk_init(w, t->ndim, t->shape, t->stride);
    return true;
}

/* The number of neighbouring elements for which operand k has the same value; 0 if it is dense or a
 * scalar, or if neighbours differ. */
static int64_t same_for(const fxi_program_spec *s, int k)
{
    fxi_walk w;
    return is_walked(s, k, &w) && w.stride[0] == 0 ? w.shape[0] : 0;
}

/* Does operand k have one value in each stretch of this length? 0: there are no stretches. */
static bool constant_stretch(const fxi_program_spec *s, int k, int64_t length)
{
    const int64_t same = length && k < s->nin ? same_for(s, k) : 0;
    return same && same % length == 0;
}

/* The length after which a walk repeats; 0 if it does not repeat within a tile. */
static int64_t period_of(const fxi_walk *w, int tile)
{
    /* A repeated operand has stride 0 on its last axis, and the axes before it are the period. */
    if (w->nd == 0 || w->stride[w->nd - 1] != 0)
        return 0;
    const int64_t n = fxi_length(w->nd - 1, w->shape);
    return n <= tile ? n : 0;
}

/* The number of neighbouring elements of operand k that are neighbours in memory, too; 0 if all
 * are, if it repeats so soon that it is laid out once, or if the stretches would be too short. */
static int64_t together_for(const fxi_program_spec *s, int k)
{
    fxi_walk w;
    return is_walked(s, k, &w) && w.stride[0] == 1 && w.shape[0] >= LEAST_TOGETHER &&
                   !period_of(&w, FXI_TILE)
               ? w.shape[0]
               : 0;
}

/* Is operand k read in its own memory in each stretch of this length, instead of being gathered? */
static bool in_its_memory(const fxi_program_spec *s, int k, int64_t length)
{
    const int64_t together = together_for(s, k);
    return (together && together % length == 0) || constant_stretch(s, k, length);
}

/* Tiles of about equal length, with whole vectors, that end where stretches of this length end. */
static int tile_of_stretches(int64_t length, int tile)
{
    const int64_t tiles = length ? fxi_cpu_divide_up(length, tile) : 1;
    return length ? (int)fxi_cpu_round_up(fxi_cpu_divide_up(length, tiles), LEAST_TILE) : tile;
}

/* The length of the stretches in which operands are scalars, or neighbours in memory like the rows
 * of a slice; 0: they are gathered instead. Short stretches make short tiles, with more calls for
 * each instruction. */
static int64_t choose_stretches(const fxi_program_spec *s)
{
    int64_t best = 0;
    for (int k = 0; k < s->nin && s->stretches; k++) {
        const int64_t same = same_for(s, k), length = same ? same : together_for(s, k);
        int64_t operands = 0;
        if (length < LEAST_TILE || (best && length >= best))
            continue;
        for (int i = 0; i < s->nin; i++)
            operands += in_its_memory(s, i, length);
        const int64_t per_tile = fxi_cpu_divide_up(FXI_TILE, length);
        if (s->program.n * (per_tile - 1) <= operands * (GATHER_TILE + GATHER_STRETCH * per_tile))
            best = length;
    }
    return best;
}

/* Adds a walk over the stretches of operand k. Stretches are along the first axis of the walk, on
 * which the value does not change, so that axis is counted in stretches. */
static void add_stretch(builder *m, int k)
{
    const fx_tensor *t = &m->spec->in[k];
    stretch_operand *r = &m->p->stretches[m->p->nstretches++];
    *r = (stretch_operand){.in = (uint8_t)k, .size = (uint8_t)fxi_cpu_size(t->dtype)};
    fxi_walk_init(&r->walk, t->ndim, t->shape, t->stride);
    r->walk.shape[0] /= m->p->length;
}

/* Adds a call that reads operand k, whose scalar may change from stretch to stretch. */
static void add_first(builder *m, int k, fxi_tile_fn loop, int to, int from, int n)
{
    const call c = {.loop = loop, .to = (uint8_t)to, .src = {(uint8_t)from, 0, 0}, .n = (int16_t)n};
    if (constant_stretch(m->spec, k, m->p->length))
        m->p->each[m->p->neach++] = c;
    else
        m->p->first[m->p->nfirst++] = c;
}

/* By size and not by type, because only bits are copied. may_alias permits it for floats. */
#define SPLAT(BITS)                                                                                \
    static void splat##BITS(void *dv, const void *const *s, int n, int64_t attr)                   \
    {                                                                                              \
        typedef uint##BITS##_t __attribute__((may_alias)) word;                                    \
        const word value = *(const word *)s[0];                                                    \
        word *d = dv;                                                                              \
        (void)attr;                                                                                \
        for (int i = 0; i < n; i++)                                                                \
            d[i] = value;                                                                          \
    }
SPLAT(8)
SPLAT(32)
SPLAT(64)

/* ---- making: operands ------------------------------------------------------------------------ */
/* Arranges for the strided operand k to be read; returns its location: a tile if the operand
 * repeats within a tile, otherwise its own, whose address is set for each tile (load_operands). */
static int add_load(builder *m, int k)
{
    const fx_tensor *t = &m->spec->in[k];
    load *l = &m->p->loads[m->p->nloads++];
    *l = (load){.in = (uint8_t)k, .size = (uint8_t)fxi_cpu_size(t->dtype)};
    fxi_walk_init(&l->walk, t->ndim, t->shape, t->stride);
    l->period = period_of(&l->walk, m->p->tile);
    l->dense = l->walk.nd > 0 && fxi_is_dense(l->walk.nd - 1, l->walk.shape, l->walk.stride);
    /* Two neighbouring tiles hold a period and a whole tile after it. */
    m->regs[k].tile = take_tiles(m, l->period ? 2 : 1);
    l->to = (uint8_t)tile_location(m, m->regs[k].tile);
    if (!l->period)
        return k;
    m->regs[k].tile = NOWHERE; /* the tile is filled once and never reused */
    return l->to;
}

/* A scalar in a program of one element counts as dense, so that loops over vectors can read it
 * directly. */
static void assign_operand(builder *m, int k)
{
    const fx_tensor *t = &m->spec->in[k];
    register_location *r = &m->regs[k];
    const fxi_tile_fn widen = half(t->dtype) ? m->simd->load[t->dtype == FX_DTYPE_BF16] : NULL;
    r->dtype = t->dtype;
    const bool stretch = constant_stretch(m->spec, k, m->p->length);
    if (stretch)
        add_stretch(m, k);
    if (stretch || (fxi_cpu_is_scalar(t) && m->spec->length != 1)) {
        r->scalar = (int16_t)k;
        if (widen) {
            r->scalar = (int16_t)tile_location(m, take_tiles(m, 1));
            add_first(m, k, widen, r->scalar, k, 1);
        }
        return;
    }
    int location = k;
    if (fxi_cpu_is_scalar(t) || fxi_is_dense(t->ndim, t->shape, t->stride))
        m->p->moving[m->p->nmoving++] = (moving){(uint8_t)k, (uint8_t)fxi_cpu_size(t->dtype)};
    else
        location = add_load(m, k);
    if (widen) {
        const int16_t own = take_tiles(m, 1);
        add_call(m, widen, tile_location(m, own), location);
        r->raw = r->tile;
        r->tile = own;
        location = tile_location(m, own);
    }
    r->vector = (int16_t)location;
}

/* ---- making: instructions -------------------------------------------------------------------- */
/* The loop of a task. *out_ones: bits of the operands that it takes as single numbers. */
static fxi_tile_fn loop_of(const builder *m, const fxi_cpu_task *t, unsigned *out_ones)
{
    unsigned scalars = 0;
    for (int i = 0; i < t->nreads; i++)
        scalars |= (unsigned)(m->regs[t->reads[i]].scalar != NOWHERE) << i;
    return fxi_cpu_task_loop(m->simd, t, scalars, out_ones);
}

/* Spreads the scalars that a task takes as vectors over tiles, once or for each stretch of
 * elements. These tiles are never reused. */
static void spread_scalars(builder *m, const fxi_cpu_task *t)
{
    unsigned ones;
    loop_of(m, t, &ones);
    for (int i = 0; i < t->nreads; i++) {
        register_location *r = &m->regs[t->reads[i]];
        /* Read as a single number, not a scalar at all, or spread for an earlier task. */
        if ((ones >> i & 1) || r->scalar == NOWHERE || r->vector != NOWHERE)
            continue;
        const size_t size = fxi_cpu_register_size(r->dtype);
        r->vector = (int16_t)tile_location(m, take_tiles(m, 1));
        add_first(m, t->reads[i],
                  size == 8   ? splat64
                  : size == 4 ? splat32
                              : splat8,
                  r->vector, r->scalar, FXI_TILE);
    }
}

/* Frees the tiles of operands that task k reads last and whose elements have `size` (same), or have
 * another size (not same). */
static void release_tiles(builder *m, int k, size_t size, bool same)
{
    const fxi_cpu_task *t = &m->tasks[k];
    for (int i = 0; i < t->nreads; i++) {
        register_location *a = &m->regs[t->reads[i]];
        /* Operands in their own memory have no tile to free. */
        if (a->tile < 0 || a->last_use != k || (fxi_cpu_register_size(a->dtype) == size) != same)
            continue;
        m->busy[a->tile] = false;
        a->tile = NOWHERE;
    }
}

/* Chooses where task k stores its result. A loop may work in place if its operand's elements have
 * the result's size: those tiles are freed before the result takes one. Others are freed after,
 * because a loop would overwrite elements that it has not read yet. */
static void assign_result(builder *m, int k)
{
    const int r = m->tasks[k].result, o = output_of(m, r);
    register_location *to = &m->regs[r];
    const size_t size = fxi_cpu_register_size(to->dtype);
    release_tiles(m, k, size, true);
    if (o >= 0 && !half(to->dtype)) {
        /* The final number is known when the tiles are counted. */
        to->vector = (int16_t)(MAX_LOCATIONS - 1 - o);
    } else {
        to->tile = take_tiles(m, 1);
        to->vector = (int16_t)tile_location(m, to->tile);
    }
    release_tiles(m, k, size, false);
    if (to->last_use < k && to->tile >= 0) /* nothing reads this result */
        m->busy[to->tile] = false;
}

static bool assign_task(builder *m, int k)
{
    const fxi_cpu_task *t = &m->tasks[k];
    unsigned ones;
    call c = {.loop = loop_of(m, t, &ones), .attr = t->ins->attr};
    if (!c.loop)
        return false;
    for (int i = 0; i < t->nreads; i++) {
        const register_location *r = &m->regs[t->reads[i]];
        c.src[i] = (uint8_t)(ones >> i & 1 ? r->scalar : r->vector);
    }
    m->regs[t->result].dtype = t->ins->dtype;
    assign_result(m, k);
    c.to = (uint8_t)m->regs[t->result].vector;
    m->p->calls[m->p->ncalls++] = c;
    /* A 16-bit result is rounded after every instruction, so that fused and separate steps give the
     * same bits. */
    if (half(t->ins->dtype))
        add_call(m, m->simd->round[t->ins->dtype == FX_DTYPE_BF16], c.to, c.to);
    return true;
}

/* ---- making: outputs ------------------------------------------------------------------------- */
/* The operands that tasks after the one of output r read directly in their memory. If the output
 * has the memory of one of them, it must not be written there before these tasks. */
static uint32_t read_later(const builder *m, int r)
{
    uint32_t mask = 0;
    for (int k = m->ntasks - 1; m->tasks[k].result != r; k--)
        for (int i = 0; i < m->tasks[k].nreads; i++) {
            const int read = m->tasks[k].reads[i];
            /* Converted and repeated operands have been copied into tiles by then. */
            if (read < m->spec->nin && m->regs[read].vector == read)
                mask |= 1u << read;
        }
    return mask;
}

static void assign_outputs(builder *m)
{
    for (int o = 0; o < m->spec->nout; o++) {
        const int r = m->spec->out[o], dtype = m->regs[r].dtype;
        m->p->out[o] = (output){.location = (uint8_t)(MAX_LOCATIONS - 1 - o),
                                .size = (uint8_t)fxi_cpu_size(dtype)};
        /* Stored by a call after all instructions, so none of them can read what it overwrites. */
        if (half(dtype))
            add_call(m, m->simd->store[dtype == FX_DTYPE_BF16], MAX_LOCATIONS - 1 - o,
                     m->regs[r].vector);
        else
            m->p->out[o].read_later = read_later(m, r);
    }
}

/* Outputs get the numbers after those of the tiles, whose count is known only now. */
static void number_outputs(fxi_program *p)
{
    const int from = MAX_LOCATIONS - p->nout, first = p->nin + p->ntiles;
#define RENUMBER(location)                                                                         \
    if (location >= from)                                                                          \
        location = (uint8_t)(first + MAX_LOCATIONS - 1 - location);
    for (int k = 0; k < p->ncalls; k++) {
        /* Outputs were numbered from the end of the range until the tiles were counted. */
        RENUMBER(p->calls[k].to)
        for (int i = 0; i < 3; i++)
            RENUMBER(p->calls[k].src[i])
    }
    for (int o = 0; o < p->nout; o++)
        RENUMBER(p->out[o].location)
#undef RENUMBER
}

/* ---- making: the cost ------------------------------------------------------------------------ */
/* Nanoseconds of one loop for one element. Functions such as exp cost ten times as much as
 * arithmetic. The figures only decide how many threads to use. */
static double loop_cost(int op, int dtype)
{
    const bool slow = (op >= FX_OP_EXP && op <= FX_OP_ERF && op != FX_OP_SQRT) || op == FX_OP_POW ||
                      op == FX_OP_ATAN2 || op == FX_OP_FLD || op == FX_OP_REM;
    return (slow ? 0.4 : 0.03) * (dtype == FX_DTYPE_F64 ? (slow ? 10 : 2) : 1);
}

static double cost_of(const fxi_program_spec *s)
{
    double bytes = 0, loops = 0;
    for (int k = 0; k < s->nin; k++)
        /* A scalar is read once and stays in the cache. */
        bytes += fxi_cpu_is_scalar(&s->in[k]) ? 0 : (double)fxi_cpu_size(s->in[k].dtype);
    for (int k = 0; k < s->nout; k++)
        bytes += (double)fxi_cpu_size(s->program.instr[s->out[k] - s->nin].dtype);
    for (int k = 0; k < s->program.n; k++)
        loops += loop_cost(s->program.instr[k].op, s->program.instr[k].dtype);
    return fxi_cpu_cost(bytes, 0) + loops;
}

/* ---- making: the program --------------------------------------------------------------------- */
/* The size of the widest register. All tiles have this size, so that a tile can be used again for a
 * register of another type. */
static size_t widest(const fxi_program_spec *s)
{
    size_t size = 4;
    for (int k = 0; k < s->nin; k++)
        size = fxi_cpu_register_size(s->in[k].dtype) > size ? fxi_cpu_register_size(s->in[k].dtype)
                                                            : size;
    for (int k = 0; k < s->program.n; k++)
        size = fxi_cpu_register_size(s->program.instr[k].dtype) > size
                   ? fxi_cpu_register_size(s->program.instr[k].dtype)
                   : size;
    return size;
}

/* Tiles that keep their contents from tile to tile are allocated before the temporary ones, so that
 * no temporary result is stored over them. */
static void assign_operands(builder *m)
{
    for (int k = 0; k < m->spec->nin; k++)
        assign_operand(m, k);
    for (int k = 0; k < m->ntasks; k++)
        spread_scalars(m, &m->tasks[k]);
    for (int k = 0; k < m->spec->nin; k++)
        /* The 16-bit elements are needed only until they are converted, at the start of each tile.
         */
        if (m->regs[k].raw >= 0)
            m->busy[m->regs[k].raw] = false;
}

/* Makes the whole program for one length of tile. It is repeated with shorter tiles until the
 * scratch is small enough. */
static fx_status assign_all(builder *m, int tile)
{
    const fxi_program_spec *s = m->spec;
    fxi_program *p = m->p;
    p->ntiles = p->nfirst = p->neach = p->ncalls = p->nloads = p->nstretches = p->nmoving = 0;
    p->tile = tile_of_stretches(p->length, tile);
    /* A power of two and one cache line more. */
    p->tile_bytes = (int32_t)((size_t)tile * widest(s)) + 64;
    memset(m->busy, 0, sizeof m->busy);
    find_last_uses(m);
    assign_operands(m);
    for (int k = 0; k < m->ntasks; k++)
        if (!assign_task(m, k))
            return FX_STATUS_UNSUPPORTED;
    assign_outputs(m);
    return s->nin + p->ntiles + s->nout <= MAX_LOCATIONS ? FX_OK : FX_STATUS_INTERNAL;
}

/* Outputs count too: one that cannot be computed in its own memory gets a tile (bind_outputs). */
static bool too_large(const fxi_program *p)
{
    return (int64_t)(p->ntiles + p->nout) * p->tile_bytes > SCRATCH_BYTES;
}

/* One allocation holds the program and its lists, whose lengths are upper bounds. A scalar may need
 * two calls at the start or for each stretch: one to convert 16 bits, one to spread it. In each
 * tile, an operand may need a call to convert it, an instruction one to round, an output one to
 * store. */
static fxi_program *allocate(const fxi_program_spec *s)
{
    const size_t nfirst = (size_t)(2 * s->nin), nin = (size_t)s->nin,
                 ncalls = (size_t)(s->nin + 2 * s->program.n + s->nout);
    fxi_program *p =
        fxi_calloc(1, sizeof *p + (2 * nfirst + ncalls) * sizeof(call) +
                          nin * (sizeof(load) + sizeof(stretch_operand) + sizeof(moving)));
    if (!p)
        return NULL;
    p->first = (call *)(p + 1);
    p->each = p->first + nfirst;
    p->calls = p->each + nfirst;
    p->loads = (load *)(void *)(p->calls + ncalls);
    p->stretches = (stretch_operand *)(void *)(p->loads + nin);
    p->moving = (moving *)(void *)(p->stretches + nin);
    p->length = choose_stretches(s);
    p->nin = s->nin;
    p->nout = s->nout;
    return p;
}

fx_status fxi_program_make(const fxi_program_spec *spec, void **out_program)
{
    builder m = {.spec = spec, .simd = fxi_cpu_simd(), .nregs = spec->nin + spec->program.n};
    *out_program = NULL;
    /* The planner makes at most 24 inputs and 64 instructions (group.h), so more are a mistake of
     * the planner. */
    if (m.nregs > MAX_REGISTERS || spec->nin > FXI_PROGRAM_OPERANDS || spec->program.n < 1)
        return FX_STATUS_INTERNAL;
    m.p = allocate(spec);
    if (!m.p)
        return FX_STATUS_MEMORY;
    bool kept[MAX_REGISTERS] = {false};
    for (int k = 0; k < spec->nout; k++)
        kept[spec->out[k]] = true;
    m.ntasks = fxi_cpu_tasks(&spec->program, spec->nin, kept, m.tasks);
    fx_status status = assign_all(&m, FXI_TILE);
    /* Shorter tiles cost more calls, but the scratch is on the stack and in the first-level cache.
     */
    for (int tile = FXI_TILE / 2; tile >= LEAST_TILE && !status && too_large(m.p); tile /= 2)
        status = assign_all(&m, tile);
    if (!status && too_large(m.p))
        status = FX_STATUS_INTERNAL;
    if (status) {
        fxi_program_free(m.p);
        return status;
    }
    number_outputs(m.p);
    m.p->cost = cost_of(spec);
    *out_program = m.p;
    return FX_OK;
}

void fxi_program_free(fxi_program *p)
{
    fxi_free(p);
}

/* ---- running --------------------------------------------------------------------------------- */
/* The state of one run on one thread, on its stack. */
typedef struct runner {
    const fxi_program *p;
    const fxi_program_args *args;
    char *scratch;
    char *at[MAX_LOCATIONS];
    moving moving[FXI_PROGRAM_OUTPUTS];  /* outputs that are computed directly in their memory */
    uint8_t copied[FXI_PROGRAM_OUTPUTS]; /* other outputs that have memory: they are copied from
                                            tiles */
    int nmoving, ncopied;
    fxi_tile_fn streamed; /* instead of the last call's loop; NULL: that loop */
    int64_t stretch_end;  /* where the current stretch ends */
} runner;

/* The loop that computes output o past the caches, if the last call computes the output and has
 * such a loop; else NULL. */
static fxi_tile_fn streamed_loop(const runner *r, int o)
{
    const call *last = r->p->calls + r->p->ncalls - 1;
    return r->p->ncalls > 0 && last->to == r->p->out[o].location ? fxi_cpu_streamed(last->loop)
                                                                 : NULL;
}

/* May output o be computed directly in its memory? Not if a later instruction reads that memory as
 * an operand, and not if the result bypasses the caches and no loop stores it there directly: it is
 * then copied from a finished tile. */
static bool computed_in_place(const runner *r, int o, fxi_tile_fn streamed)
{
    const char *to = r->args->out[o];
    for (uint32_t later = r->p->out[o].read_later; later; later &= later - 1)
        /* Addresses are known only now, because each run binds its own buffers. */
        if (r->args->in[__builtin_ctz(later)] == to)
            return false;
    return !r->args->stream || streamed;
}

static void bind_outputs(runner *r)
{
    const fxi_program *p = r->p;
    for (int o = 0; o < p->nout; o++) {
        const output *out = &p->out[o];
        char *to = r->args->out ? r->args->out[o] : NULL;
        const fxi_tile_fn streamed = to && r->args->stream ? streamed_loop(r, o) : NULL;
        if (streamed)
            r->streamed = streamed;
        if (to && computed_in_place(r, o, streamed)) {
            r->at[out->location] = to + r->args->from * out->size;
            r->moving[r->nmoving++] = (moving){out->location, out->size};
            continue;
        }
        r->at[out->location] = r->scratch + (p->ntiles + o) * p->tile_bytes;
        /* An output without memory is only shown to the sink. */
        if (to)
            r->copied[r->ncopied++] = (uint8_t)o;
    }
}

/* Lays out one period of an operand and repeats it, so that any window of one tile is
 * contiguous. */
static void lay_out(runner *r, const load *l, int64_t n)
{
    const size_t need = (size_t)(l->period + n) * l->size, have = (size_t)l->period * l->size;
    const void *in = r->args->in[l->in];
    char *to = r->at[l->to];
    if (l->dense) {
        memcpy(to, in, have);
    } else {
        fxi_walk walk = l->walk;
        fxi_walk_read(&walk, in, l->size, to, l->period);
    }
    if (have < need)
        fxi_fill_period(to, have, need);
}

static void spread(const runner *r, const call *c, int count, int n)
{
    for (const call *end = c + count; c < end; c++)
        c->loop(r->at[c->to], (const void *[]){r->at[c->src[0]]}, c->n < n ? c->n : n, 0);
}

/* Moves the scalars to the stretch that begins or continues here. */
static void next_stretch(runner *r, fxi_walk *walks)
{
    const fxi_program *p = r->p;
    for (int k = 0; k < p->nstretches; k++) {
        const stretch_operand *o = &p->stretches[k];
        /* Inputs are only read; the table has one type for all locations. */
        r->at[o->in] = (char *)(uintptr_t)fxi_at(r->args->in[o->in], walks[k].offset, o->size);
        fxi_walk_next(&walks[k]);
    }
    r->stretch_end += p->length;
    spread(r, p->each, p->neach, p->tile);
}

/* Fills the table of addresses for elements from args->from on. */
static void bind(runner *r, fxi_walk *walks)
{
    const fxi_program *p = r->p;
    const fxi_program_args *a = r->args;
    const int64_t total = a->to - a->from, n = total < p->tile ? total : p->tile;
    for (int k = 0; k < p->nin; k++)
        /* Inputs are only read; the table has one type for all locations. */
        r->at[k] = (char *)(uintptr_t)a->in[k];
    for (int k = 0; a->from > 0 && k < p->nmoving; k++)
        r->at[p->moving[k].location] += a->from * p->moving[k].size;
    for (int k = 0; k < p->ntiles; k++)
        r->at[p->nin + k] = r->scratch + k * p->tile_bytes;
    bind_outputs(r);
    /* Scalars change between runs of the program, so they are spread at the start of each. */
    spread(r, p->first, p->nfirst, (int)n);
    for (int k = 0; k < p->nstretches; k++) {
        walks[p->nloads + k] = p->stretches[k].walk;
        fxi_walk_seek(&walks[p->nloads + k], a->from / p->length);
    }
    r->stretch_end = p->length ? a->from / p->length * p->length : a->to;
    for (int k = 0; k < p->nloads; k++) {
        const load *l = &p->loads[k];
        /* Laid out once a run; the other operands are loaded tile by tile. */
        if (l->period) {
            lay_out(r, l, n);
            continue;
        }
        walks[k] = l->walk;
        fxi_walk_seek(&walks[k], a->from);
    }
}

/* An operand that is laid out needs no copy: its address moves to the current position in the
 * period. Neither do elements that are neighbours in memory, such as those of a long bias. */
static void load_operands(runner *r, fxi_walk *walks, int64_t at, int n)
{
    for (int k = 0; k < r->p->nloads; k++) {
        const load *l = &r->p->loads[k];
        char *memory = r->scratch + (l->to - r->p->nin) * r->p->tile_bytes;
        if (l->period) {
            r->at[l->to] = memory + (at == 0 ? 0 : at % l->period) * l->size;
            continue;
        }
        const void *in = r->args->in[l->in], *there = fxi_walk_take(&walks[k], in, l->size, n);
        if (!there)
            fxi_walk_read(&walks[k], in, l->size, memory, n);
        /* Inputs are only read; the table has one type for all locations. */
        r->at[l->in] = there ? (char *)(uintptr_t)there : memory;
    }
}

/* Copies outputs from their tiles to memory, while the tiles are in the first-level cache. */
static void copy_outputs(const runner *r, int64_t at, int n)
{
    for (int k = 0; k < r->ncopied; k++) {
        const output *out = &r->p->out[r->copied[k]];
        char *to = (char *)r->args->out[r->copied[k]] + at * out->size;
        const size_t bytes = (size_t)n * out->size;
        if (r->args->stream)
            fxi_cpu_simd()->stream(to, r->at[out->location], bytes);
        else
            memcpy(to, r->at[out->location], bytes);
    }
}

/* Gives the tile to the sink, a reduction for example, while it is in the first-level cache. */
static void show(const runner *r, int64_t at, int n)
{
    const void *tiles[FXI_PROGRAM_OUTPUTS];
    for (int o = 0; o < r->p->nout; o++)
        tiles[o] = r->at[r->p->out[o].location];
    r->args->sink(r->args->user, tiles, at, n);
}

/* Addresses are advanced, not computed from an index: the inner loop then only loads them. */
static void move_on(runner *r, const moving *list, int count, int n)
{
    for (int k = 0; k < count; k++)
        r->at[list[k].location] += (int64_t)n * list[k].size;
}

/* The inner loop of the interpreter. It only looks up addresses; all decisions were made before. */
static void run_tiles(runner *r, fxi_walk *walks)
{
    const fxi_program *p = r->p;
    const fxi_program_args *a = r->args;
    for (int64_t at = a->from; at < a->to;) {
        if (at >= r->stretch_end)
            next_stretch(r, walks + p->nloads);
        const int64_t left = (a->to < r->stretch_end ? a->to : r->stretch_end) - at;
        const int n = left < p->tile ? (int)left : p->tile;
        load_operands(r, walks, at, n);
        for (const call *c = p->calls, *end = c + p->ncalls; c < end; c++) {
            const void *const src[] = {r->at[c->src[0]], r->at[c->src[1]], r->at[c->src[2]]};
            (r->streamed && c + 1 == end ? r->streamed : c->loop)(r->at[c->to], src, n, c->attr);
        }
        copy_outputs(r, at, n);
        if (a->sink)
            show(r, at, n);
        at += n;
        if (at == a->to) /* most runs have one tile */
            break;
        move_on(r, p->moving, p->nmoving, n);
        move_on(r, r->moving, r->nmoving, n);
    }
}

void fxi_program_run(const fxi_program *p, const fxi_program_args *args)
{
    _Alignas(64) char scratch[SCRATCH_BYTES];
    /* A walk has a state, so each run has copies of its own: a program is shared by threads. */
    fxi_walk walks[FXI_PROGRAM_OPERANDS];
    if (args->from >= args->to)
        return;
    /* Initialised by member: the table of addresses is large, and bind fills the entries that are
     * used. */
    runner r;
    r.p = p;
    r.args = args;
    r.scratch = scratch;
    r.nmoving = r.ncopied = 0;
    r.streamed = NULL;
    bind(&r, walks);
    run_tiles(&r, walks);
    /* The fence that stores past the caches need before another thread may read them. */
    if (args->stream)
        fxi_cpu_simd()->stream_end();
}

double fxi_program_cost(const fxi_program *p)
{
    return p->cost;
}

typedef struct shares {
    const fxi_program *p;
    const fxi_program_args *args;
    int64_t piece; /* elements; parts are whole pieces */
    int64_t pieces, parts;
} shares;

static void run_share(void *user, int64_t part)
{
    const shares *s = user;
    fxi_program_args args = *s->args;
    int64_t from, to;
    fxi_cpu_range(s->pieces, s->parts, part, &from, &to);
    args.from = s->args->from + from * s->piece;
    args.to = fxi_cpu_min(s->args->from + to * s->piece, s->args->to);
    fxi_program_run(s->p, &args);
}

static shares shares_of(const fxi_program *p, const fxi_program_args *args, int64_t piece,
                        int64_t (*parts)(int64_t items, double cost))
{
    const int64_t n = args->to - args->from, pieces = fxi_cpu_divide_up(n, piece);
    return (shares){.p = p,
                    .args = args,
                    .piece = piece,
                    .pieces = pieces,
                    .parts = parts(pieces, p->cost * (double)n)};
}

/* A program that is too short to wake threads for it is divided into smaller pieces for threads
 * that are awake. If it is too short for these too, it runs in the caller. */
void fxi_program_run_parallel(const fxi_program *p, const fxi_program_args *args)
{
    enum { PIECE = 16 * FXI_TILE, SMALL_PIECE = 2 * FXI_TILE };
    shares s = shares_of(p, args, PIECE, fxi_cpu_parts);
    if (s.parts > 1) {
        fxi_cpu_parallel(s.parts, run_share, &s);
        return;
    }
    s = shares_of(p, args, SMALL_PIECE, fxi_cpu_parts_if_awake);
    if (s.parts == 1 || !fxi_cpu_parallel_if_awake(s.parts, run_share, &s))
        fxi_program_run(p, args);
}
