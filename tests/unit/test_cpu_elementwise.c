/* Elementwise programs on the CPU against libm and plain loops in double: every op, type and
 * layout, integer rules, conversions, programs of many registers, in-place results and a failing
 * allocation. */
#include "cpu_check.h"
#include "cpu_parallel.h"
#include "cpu_program.h"
#include "cpu_simd.h"

/* Runs a program over operands. */
static step_run run_program(const fx_instr *program, int ninstr, int nin, const operand *const *in,
                            operand *out)
{
    step_run b = {
        .step = {
            .op = program[ninstr - 1].op, .cls = FX_CLASS_ELEMENTWISE, .nin = nin, .out = out->t}};
    for (int k = 0; k < nin; k++) {
        b.in[k] = in[k]->t;
        b.ptr[k] = in[k]->data;
    }
    b.step.in = b.in;
    b.step.as.elementwise.program = (fx_program){(fx_instr *)(uintptr_t)program, ninstr};
    b.status = run_once(&b.step, b.ptr, out->data, &b.run);
    check_guards(out);
    return b;
}

static fx_instr instruction(fx_op op, int dtype, int from, int nsrc)
{
    return (fx_instr){.op = (uint8_t)op,
                      .dtype = (uint8_t)dtype,
                      .from = (uint8_t)from,
                      .nsrc = (uint8_t)nsrc,
                      .src = {0, 1, 2}};
}

/* ---- every op over every layout -------------------------------------------------------------- */
static double ref_add(double x, double y)
{
    return x + y;
}
static double ref_sub(double x, double y)
{
    return x - y;
}
static double ref_mul(double x, double y)
{
    return x * y;
}
static double ref_div(double x, double y)
{
    return x / y;
}
static double ref_fld(double x, double y)
{
    return floor(x / y);
}
static double ref_max(double x, double y)
{
    return isnan(x) || x > y ? x : y;
}
static double ref_min(double x, double y)
{
    return isnan(x) || x < y ? x : y;
}
static double ref_lt(double x, double y)
{
    return x < y;
}
static double ref_le(double x, double y)
{
    return x <= y;
}
static double ref_eq(double x, double y)
{
    return x == y;
}
static double ref_ne(double x, double y)
{
    return x != y;
}
static double ref_neg(double x, double y)
{
    return (void)y, -x;
}
static double ref_cube(double x, double y)
{
    return (void)y, x * x * x;
}
static double ref_sigmoid(double x, double y)
{
    return (void)y, 1 / (1 + exp(-x));
}
#define UNARY(f)                                                                                   \
    static double ref_##f(double x, double y)                                                      \
    {                                                                                              \
        return (void)y, f(x);                                                                      \
    }
UNARY(exp)
UNARY(expm1)
UNARY(log)
UNARY(log1p)
UNARY(sqrt)
UNARY(sin)
UNARY(cos)
UNARY(tanh)
UNARY(erf)
UNARY(floor)
static double ref_relu(double x, double y)
{
    return (void)y, x <= 0 ? 0 : x;
}

enum { FLOATS = 1, INTS = 2, BOOLS = 4, COMPARES = 8 };
static const struct {
    fx_op op;
    int nsrc, types;
    double (*ref)(double, double);
} cases[] = {
    {FX_OP_ADD, 2, FLOATS | INTS, ref_add},
    {FX_OP_SUB, 2, FLOATS | INTS, ref_sub},
    {FX_OP_MUL, 2, FLOATS | INTS | BOOLS, ref_mul},
    {FX_OP_DIV, 2, FLOATS, ref_div},
    {FX_OP_FLD, 2, FLOATS, ref_fld},
    {FX_OP_REM, 2, FLOATS, fmod},
    {FX_OP_POW, 2, FLOATS, pow},
    {FX_OP_ATAN2, 2, FLOATS, atan2},
    {FX_OP_MAX, 2, FLOATS | INTS | BOOLS, ref_max},
    {FX_OP_MIN, 2, FLOATS | INTS | BOOLS, ref_min},
    {FX_OP_LT, 2, FLOATS | INTS | BOOLS | COMPARES, ref_lt},
    {FX_OP_LE, 2, FLOATS | INTS | BOOLS | COMPARES, ref_le},
    {FX_OP_EQ, 2, FLOATS | INTS | BOOLS | COMPARES, ref_eq},
    {FX_OP_NE, 2, FLOATS | INTS | BOOLS | COMPARES, ref_ne},
    {FX_OP_NEG, 1, FLOATS | INTS, ref_neg},
    {FX_OP_POWI, 1, FLOATS | INTS, ref_cube},
    {FX_OP_EXP, 1, FLOATS, ref_exp},
    {FX_OP_EXPM1, 1, FLOATS, ref_expm1},
    {FX_OP_LOG, 1, FLOATS, ref_log},
    {FX_OP_LOG1P, 1, FLOATS, ref_log1p},
    {FX_OP_SQRT, 1, FLOATS, ref_sqrt},
    {FX_OP_SIN, 1, FLOATS, ref_sin},
    {FX_OP_COS, 1, FLOATS, ref_cos},
    {FX_OP_TANH, 1, FLOATS, ref_tanh},
    {FX_OP_SIGMOID, 1, FLOATS, ref_sigmoid},
    {FX_OP_ERF, 1, FLOATS, ref_erf},
    {FX_OP_RELU, 1, FLOATS | INTS | BOOLS, ref_relu},
    {FX_OP_FLOOR, 1, FLOATS | INTS, ref_floor},
};

static bool takes(int types, int dtype)
{
    const bool integer = dtype == FX_DTYPE_I32 || dtype == FX_DTYPE_I64 || dtype == FX_DTYPE_U8;
    return types & (dtype == FX_DTYPE_BOOL ? BOOLS : integer ? INTS : FLOATS);
}

/* UInt8 results are those of whole numbers modulo 256. */
static double wrapped(double v, int dtype)
{
    return dtype == FX_DTYPE_U8 ? v - 256 * floor(v / 256) : v;
}

static void check_case(size_t c, int dtype, layout la, layout lb, int ndim, const int64_t *shape)
{
    const int out_type = cases[c].types & COMPARES ? FX_DTYPE_BOOL : dtype;
    operand a = make_operand(dtype, la, ndim, shape),
            out = make_operand(out_type, DENSE, ndim, shape);
    operand b = make_operand(dtype, lb, ndim, shape);
    fx_instr ins = instruction(cases[c].op, out_type, dtype, cases[c].nsrc);
    ins.attr = 3;
    assert_int_equal(run_program(&ins, 1, cases[c].nsrc, (const operand *[]){&a, &b}, &out).status,
                     FX_OK);
    for (int64_t i = 0; i < length_of(&out); i++) {
        double want = wrapped(cases[c].ref(element(&a, i), element(&b, i)), dtype);
        if (fxi_cpu_is_half(dtype) && fabs(want) > (dtype == FX_DTYPE_F16 ? 65519.0 : 3.39e38))
            want = copysign(INFINITY, want);
        check_close(element(&out, i), want, 4 * epsilon_of(dtype), 0);
    }
    drop_operand(&a), drop_operand(&b), drop_operand(&out);
}

static void every_op_type_and_layout(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
            if (!takes(cases[c].types, dtype))
                continue;
            for (int l = 0; l < LAYOUTS; l++) {
                check_case(c, dtype, (layout)l, (layout)((l + 2) % LAYOUTS), SHAPE(7, 9, 11));
                check_case(c, dtype, (layout)l, (layout)l, SHAPE(300, 2));
            }
            check_case(c, dtype, DENSE, DENSE, SHAPE(3, 0, 2));
            check_case(c, dtype, DENSE, DENSE, 0, NULL);
        }
}

static void scalars_and_select(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
        operand c = make_operand(FX_DTYPE_BOOL, REVERSED, SHAPE(30, 20)),
                s = scalar_operand(dtype, 1);
        operand b = make_operand(dtype, GAPS, SHAPE(30, 20)),
                out = make_operand(dtype, DENSE, SHAPE(30, 20));
        const fx_instr ins = instruction(FX_OP_SELECT, dtype, dtype, 3);
        assert_int_equal(run_program(&ins, 1, 3, (const operand *[]){&c, &s, &b}, &out).status,
                         FX_OK);
        for (int64_t i = 0; i < length_of(&out); i++)
            assert_true(element(&out, i) == (element(&c, i) != 0 ? 1 : element(&b, i)));
        drop_operand(&c), drop_operand(&s), drop_operand(&b), drop_operand(&out);
    }
}

/* ---- rules of maxima and integers ------------------------------------------------------------ */
static double apply2(fx_op op, int dtype, double x, double y, int64_t attr)
{
    operand a = scalar_operand(dtype, x), b = scalar_operand(dtype, y),
            out = scalar_operand(dtype, 0);
    fx_instr ins = instruction(op, dtype, dtype, op == FX_OP_POWI || op == FX_OP_NEG ? 1 : 2);
    ins.attr = attr;
    assert_int_equal(run_program(&ins, 1, ins.nsrc, (const operand *[]){&a, &b}, &out).status,
                     FX_OK);
    const double r = element(&out, 0);
    drop_operand(&a), drop_operand(&b), drop_operand(&out);
    return r;
}

static void max_and_min_propagate_nan(void **state)
{
    (void)state;
    for (int dtype = FX_DTYPE_F32; dtype <= FX_DTYPE_F64; dtype++)
        for (fx_op op = FX_OP_MAX; op <= FX_OP_MIN; op++) {
            assert_true(isnan(apply2(op, dtype, NAN, 1, 0)));
            assert_true(isnan(apply2(op, dtype, 1, NAN, 0)));
            assert_int_equal(!signbit(apply2(op, dtype, -0.0, 0.0, 0)), op == FX_OP_MAX);
            assert_int_equal(!signbit(apply2(op, dtype, 0.0, -0.0, 0)), op == FX_OP_MAX);
        }
}

static void integer_rules(void **state)
{
    (void)state;
    const double low = -2147483648.0;
    assert_true(apply2(FX_OP_ADD, FX_DTYPE_I32, 2147483647.0, 1, 0) == low);
    assert_true(apply2(FX_OP_NEG, FX_DTYPE_I32, low, 0, 0) == low);
    assert_true(apply2(FX_OP_MUL, FX_DTYPE_I32, 65536, 65537, 0) == 65536);
    assert_true(apply2(FX_OP_FLD, FX_DTYPE_I32, low, -1, 0) == low);
    assert_true(apply2(FX_OP_FLD, FX_DTYPE_I64, -0x1p62 * 1, 0, 0) == 0);
    assert_true(apply2(FX_OP_FLD, FX_DTYPE_I32, -7, 2, 0) == -4);
    assert_true(apply2(FX_OP_FLD, FX_DTYPE_I32, 7, -2, 0) == -4);
    assert_true(apply2(FX_OP_FLD, FX_DTYPE_I32, -7, -2, 0) == 3);
    assert_true(apply2(FX_OP_FLD, FX_DTYPE_I32, -8, 2, 0) == -4);
    assert_true(apply2(FX_OP_FLD, FX_DTYPE_U8, 200, 7, 0) == 28);
    assert_true(apply2(FX_OP_SUB, FX_DTYPE_U8, 3, 5, 0) == 254);
    assert_true(apply2(FX_OP_POW, FX_DTYPE_I32, -3, 5, 0) == -243);
    assert_true(apply2(FX_OP_POW, FX_DTYPE_I32, 2, 31, 0) == low);
    assert_true(apply2(FX_OP_POW, FX_DTYPE_I32, 2, -1, 0) == 0);
    assert_true(apply2(FX_OP_POW, FX_DTYPE_I32, -1, -3, 0) == -1);
    assert_true(apply2(FX_OP_POW, FX_DTYPE_I64, 1, -3, 0) == 1);
    assert_true(apply2(FX_OP_POW, FX_DTYPE_I64, 0, 0, 0) == 1);
    assert_true(apply2(FX_OP_POWI, FX_DTYPE_I64, 3, 0, 39) == 4052555153018976267.0);
    assert_true(apply2(FX_OP_POWI, FX_DTYPE_F32, 0, 0, 0) == 1);
    assert_true(apply2(FX_OP_POWI, FX_DTYPE_F64, -2, 0, -3) == -0.125);
    assert_true(apply2(FX_OP_POWI, FX_DTYPE_F32, 0, 0, -1) == INFINITY);
    assert_true(apply2(FX_OP_POWI, FX_DTYPE_F64, 1.5, 0, 7) == pow(1.5, 7));
}

/* ---- conversions ----------------------------------------------------------------------------- */
static double cast_one(int from, int to, double x)
{
    operand a = scalar_operand(from, x), out = scalar_operand(to, 0);
    const fx_instr ins = instruction(FX_OP_CAST, to, from, 1);
    assert_int_equal(run_program(&ins, 1, 1, (const operand *[]){&a}, &out).status, FX_OK);
    const double r = element(&out, 0);
    drop_operand(&a), drop_operand(&out);
    return r;
}

static void casts_saturate_and_wrap(void **state)
{
    (void)state;
    for (int from = FX_DTYPE_F32; from <= FX_DTYPE_F64; from++) {
        assert_true(cast_one(from, FX_DTYPE_I32, 1e20) == 2147483647.0);
        assert_true(cast_one(from, FX_DTYPE_I32, -INFINITY) == -2147483648.0);
        assert_true(cast_one(from, FX_DTYPE_I32, NAN) == 0);
        assert_true(cast_one(from, FX_DTYPE_I32, -2.75) == -2);
        assert_true(cast_one(from, FX_DTYPE_I64, 1e30) == 0x1p63); /* INT64_MAX, as double */
        assert_true(cast_one(from, FX_DTYPE_I64, -1e30) == -0x1p63);
        assert_true(cast_one(from, FX_DTYPE_I64, NAN) == 0);
        assert_true(cast_one(from, FX_DTYPE_I64, 0x1p40) == 0x1p40);
        assert_true(cast_one(from, FX_DTYPE_U8, -1.5) == 0);
        assert_true(cast_one(from, FX_DTYPE_U8, 255.9) == 255);
        assert_true(cast_one(from, FX_DTYPE_U8, INFINITY) == 255);
        assert_true(cast_one(from, FX_DTYPE_U8, NAN) == 0);
        assert_true(cast_one(from, FX_DTYPE_BOOL, 0.25) == 1);
        assert_true(cast_one(from, FX_DTYPE_BOOL, NAN) == 1);
        assert_true(cast_one(from, FX_DTYPE_BOOL, -0.0) == 0);
    }
    assert_true(cast_one(FX_DTYPE_I64, FX_DTYPE_I32, 0x1p33 + 5) == 5);
    assert_true(cast_one(FX_DTYPE_I32, FX_DTYPE_U8, -1) == 255);
    assert_true(cast_one(FX_DTYPE_I64, FX_DTYPE_BOOL, 0x1p33) == 1);
    assert_true(cast_one(FX_DTYPE_I32, FX_DTYPE_F32, 16777217) == 16777216);
    assert_true(cast_one(FX_DTYPE_BOOL, FX_DTYPE_F16, 1) == 1);
    assert_true(cast_one(FX_DTYPE_I32, FX_DTYPE_F16, 70000) == INFINITY);
    /* Just above the middle of two Float16 (1 + 2⁻¹¹): a detour through Float32 would lose the
     * 2⁻⁴⁰. */
    assert_true(cast_one(FX_DTYPE_F64, FX_DTYPE_F16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
    assert_true(cast_one(FX_DTYPE_F64, FX_DTYPE_F16, 1 + 0x1p-11) == 1);
    assert_true(cast_one(FX_DTYPE_F64, FX_DTYPE_BF16, 1 + 0x1p-8 + 0x1p-50) == 1 + 0x1p-7);
    assert_true(cast_one(FX_DTYPE_F64, FX_DTYPE_BF16, 1e300) == INFINITY);
    assert_true(isnan(cast_one(FX_DTYPE_F64, FX_DTYPE_F16, NAN)));
    assert_true(isnan(cast_one(FX_DTYPE_F32, FX_DTYPE_BF16, NAN)));
}

static void casts_between_all_types(void **state)
{
    (void)state;
    for (int from = 0; from < FX_DTYPE_COUNT; from++)
        for (int to = 0; to < FX_DTYPE_COUNT; to++)
            for (int l = 0; l < LAYOUTS; l++) {
                operand a = make_operand(from, (layout)l, SHAPE(33, 9)),
                        out = make_operand(to, DENSE, SHAPE(33, 9));
                const fx_instr ins = instruction(FX_OP_CAST, to, from, 1);
                assert_int_equal(run_program(&ins, 1, 1, (const operand *[]){&a}, &out).status,
                                 FX_OK);
                for (int64_t i = 0; i < length_of(&out); i++) {
                    const double x = element(&a, i), whole = trunc(x);
                    const bool from_float = from < FX_DTYPE_I32 || from >= FX_DTYPE_F16;
                    double want = to >= FX_DTYPE_I32 && to <= FX_DTYPE_U8 ? whole : x;
                    if (to == FX_DTYPE_U8 && whole < 0)
                        want = from_float ? 0 : whole + 256;
                    if (to == FX_DTYPE_BOOL)
                        want = x != 0;
                    assert_true(element(&out, i) == want);
                }
                drop_operand(&a), drop_operand(&out);
            }
}

/* All 65,536 Float16 survive the way through Float32 registers; every Float32 between rounds to
 * even. */
static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (int bf = 0; bf < 2; bf++) {
        const fxi_tile_fn load = fxi_cpu_simd()->load[bf], store = fxi_cpu_simd()->store[bf];
        for (uint32_t h = 0; h < 0x10000; h += FXI_TILE) {
            uint16_t in[FXI_TILE], back[FXI_TILE];
            float wide[FXI_TILE], middle[FXI_TILE];
            for (uint32_t k = 0; k < FXI_TILE; k++)
                in[k] = (uint16_t)(h + k);
            load(wide, (const void *[]){in}, FXI_TILE, 0);
            store(back, (const void *[]){wide}, FXI_TILE, 0);
            for (int k = 0; k < FXI_TILE; k++)
                assert_true(isnan(wide[k])
                                ? isnan(bf ? fxi_bf16_to_f32(back[k]) : fxi_f16_to_f32(back[k]))
                                : back[k] == in[k]);
            /* the middle of neighbours goes to the even one */
            for (int k = 0; k + 1 < FXI_TILE; k++)
                middle[k] = (float)(((double)wide[k] + (double)wide[k + 1]) / 2);
            store(back, (const void *[]){middle}, FXI_TILE - 1, 0);
            for (int k = 0; k + 1 < FXI_TILE; k++)
                if (isfinite(wide[k]) && isfinite(wide[k + 1]))
                    assert_int_equal(back[k], in[k] % 2 ? in[k + 1] : in[k]);
        }
    }
}

/* ---- programs -------------------------------------------------------------------------------- */
/* A chain of n instructions r ← r·x + … that keeps many registers alive until the end. */
static void many_registers(void **state)
{
    (void)state;
    enum { INPUTS = 2, N = 60 };
    fx_instr p[N];
    for (int k = 0; k < N / 2; k++) { /* register 2+k = x·y + …: kept */
        p[k] = instruction(k % 2 ? FX_OP_ADD : FX_OP_MUL, FX_DTYPE_F64, FX_DTYPE_F64, 2);
        p[k].src[1] = (uint8_t)(k ? INPUTS + k - 1 : 1);
    }
    for (int k = N / 2; k < N; k++) { /* sums of what was kept, newest first */
        p[k] = instruction(FX_OP_SUB, FX_DTYPE_F64, FX_DTYPE_F64, 2);
        p[k].src[0] = (uint8_t)(INPUTS + k - 1);
        p[k].src[1] = (uint8_t)(INPUTS + N - 1 - k);
    }
    operand x = make_operand(FX_DTYPE_F64, REVERSED, SHAPE(70, 9)),
            y = make_operand(FX_DTYPE_F64, GAPS, SHAPE(70, 9));
    operand out = make_operand(FX_DTYPE_F64, DENSE, SHAPE(70, 9));
    assert_int_equal(run_program(p, N, INPUTS, (const operand *[]){&x, &y}, &out).status, FX_OK);
    for (int64_t i = 0; i < length_of(&out); i++) {
        double r[INPUTS + N] = {element(&x, i), element(&y, i)};
        for (int k = 0; k < N; k++) {
            const double a = r[p[k].src[0]], b = r[p[k].src[1]];
            r[INPUTS + k] = p[k].op == FX_OP_ADD ? a + b : p[k].op == FX_OP_MUL ? a * b : a - b;
        }
        assert_true(element(&out, i) == r[INPUTS + N - 1]);
    }
    fxi_fault_set(0);
    step_run b = run_program(p, N, INPUTS, (const operand *[]){&x, &y}, &out);
    fxi_fault_set(-1);
    assert_int_equal(b.status, FX_STATUS_MEMORY);
    drop_operand(&x), drop_operand(&y), drop_operand(&out);
}

/* ---- two instructions in one loop ------------------------------------------------------------ */
/* Each result is rounded to Float32, as between two loops. */
static float arithmetic(int op, float a, float b)
{
    volatile float r = op == FX_OP_ADD   ? a + b
                       : op == FX_OP_SUB ? a - b
                       : op == FX_OP_MUL ? a * b
                                         : -a;
    return r;
}

/* Runs a program over the operands and compares each element of its last result. */
static void check_arithmetic(const fx_instr *p, int n, int nin, const operand *const *in,
                             int64_t length)
{
    operand out = make_operand(FX_DTYPE_F32, DENSE, 1, &length);
    assert_int_equal(run_program(p, n, nin, in, &out).status, FX_OK);
    for (int64_t i = 0; i < length; i++) {
        float r[64];
        for (int k = 0; k < nin; k++)
            r[k] = (float)element(in[k], in[k]->t.ndim ? i : 0);
        for (int k = 0; k < n; k++)
            r[nin + k] = arithmetic(p[k].op, r[p[k].src[0]], r[p[k].src[1]]);
        const float got = (float)element(&out, i), want = r[nin + n - 1];
        assert_true(isnan(want) ? isnan(got) : memcmp(&got, &want, sizeof got) == 0);
    }
    drop_operand(&out);
}

/* A vector of numbers that need all bits, and of special ones; or a single number. */
static operand random_operand(bool scalar, int64_t length)
{
    static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, 0x1p127, 0x1p-149};
    if (scalar)
        return scalar_operand(FX_DTYPE_F32, (float)next_random() * 0x1p-31f - 1);
    operand o = make_operand(FX_DTYPE_F32, next_random() % 2 ? DENSE : REVERSED, 1, &length);
    for (int64_t i = 0; i < length; i++)
        set_element(&o, i,
                    next_random() % 16 ? (float)next_random() * 0x1p-31f - 1
                                       : special[next_random() % 7]);
    return o;
}

/* A matrix that is dense, or part of the rows of a longer one, or one column that is repeated. */
static operand random_matrix(int64_t rows, int64_t columns)
{
    const uint32_t kind = next_random() % 3;
    operand o = make_operand(FX_DTYPE_F32, DENSE, SHAPE(rows + (kind == 1 ? 3 : 0), columns));
    for (int64_t i = 0; i < length_of(&o); i++)
        set_element(&o, i, (float)next_random() * 0x1p-31f - 1);
    o.t.shape[0] = rows;
    if (kind == 2)
        o.t.stride[1] = 0;
    return o;
}

static const fx_op arithmetic_ops[] = {FX_OP_ADD, FX_OP_SUB, FX_OP_MUL, FX_OP_NEG};
static fx_instr random_arithmetic(int op, int a, int b)
{
    fx_instr ins = instruction(arithmetic_ops[op], FX_DTYPE_F32, FX_DTYPE_F32, op == 3 ? 1 : 2);
    ins.src[0] = (uint8_t)a;
    ins.src[1] = (uint8_t)b;
    return ins;
}

/* All loops: the operations, the side on which the second takes the first's result, and single
 * numbers among the operands. */
static void two_instructions_round_twice(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 37, 700};
    for (int which = 0; which < 4 * 4 * 2 * 8 * 3; which++) {
        const int first = which % 4, second = which / 4 % 4, side = which / 16 % 2,
                  scalars = which / 32 % 8;
        const int64_t length = lengths[which / 256];
        operand o[3];
        for (int k = 0; k < 3; k++)
            o[k] = random_operand(scalars >> k & 1, length);
        const fx_instr p[] = {random_arithmetic(first, 0, 1),
                              random_arithmetic(second, side ? 2 : 3, side ? 3 : 2)};
        check_arithmetic(p, 2, 3, (const operand *[]){&o[0], &o[1], &o[2]}, length);
        drop_operand(&o[0]), drop_operand(&o[1]), drop_operand(&o[2]);
    }
}

/* Programs in which a loop of two instructions reads operands after later instructions have run. In
 * every other program, operands are matrices, most with columns longer than a tile. */
static void random_programs_round_every_instruction(void **state)
{
    (void)state;
    enum { INPUTS = 4, MOST = 30 };
    for (int which = 0; which < 300; which++) {
        const int n = 1 + (int)(next_random() % MOST);
        const int64_t columns = 3, rows = which % 2 ? 1 + (int64_t)(next_random() % 4000) : 0,
                      length = rows ? rows * columns : 1 + (int64_t)(next_random() % 600);
        fx_instr p[MOST];
        operand o[INPUTS];
        const operand *in[INPUTS];
        for (int k = 0; k < INPUTS; k++) {
            o[k] = rows && k ? random_matrix(rows, columns)
                             : random_operand(next_random() % 3 == 0, length);
            in[k] = &o[k];
        }
        for (int k = 0; k < n; k++) {
            /* Recent results are read more often. */
            const int most = INPUTS + k, recent = most < 5 ? most : 5;
            const int a = (int)(next_random() % (uint32_t)most),
                      b = most - 1 - (int)(next_random() % (uint32_t)recent);
            p[k] = random_arithmetic((int)(next_random() % 4), next_random() % 2 ? a : b, b);
        }
        check_arithmetic(p, n, INPUTS, in, length);
        for (int k = 0; k < INPUTS; k++)
            drop_operand(&o[k]);
    }
}

static void half_programs_round_every_instruction(void **state)
{
    (void)state;
    for (int dtype = FX_DTYPE_F16; dtype <= FX_DTYPE_BF16; dtype++) {
        fx_instr p[3] = {instruction(FX_OP_MUL, dtype, dtype, 2),
                         instruction(FX_OP_ADD, dtype, dtype, 2),
                         instruction(FX_OP_DIV, dtype, dtype, 2)};
        p[1].src[0] = 3;
        p[2].src[0] = 4;
        p[2].src[1] = 2;
        operand x = make_operand(dtype, GAPS, SHAPE(400)),
                y = make_operand(dtype, DENSE, SHAPE(400)), z = scalar_operand(dtype, 3);
        operand out = make_operand(dtype, DENSE, SHAPE(400));
        assert_int_equal(run_program(p, 3, 3, (const operand *[]){&x, &y, &z}, &out).status, FX_OK);
        for (int64_t i = 0; i < 400; i++) {
            uint16_t h;
            store_element(dtype, &h, element(&x, i) * element(&y, i));
            store_element(dtype, &h, load_element(dtype, &h) + element(&y, i));
            store_element(dtype, &h, (double)((float)load_element(dtype, &h) / 3.0f));
            assert_true(element(&out, i) == load_element(dtype, &h));
        }
        drop_operand(&x), drop_operand(&y), drop_operand(&z), drop_operand(&out);
    }
}

static void mixed_types_in_place(void **state)
{
    (void)state;
    /* out = select(x < y, cast(i), x), into the memory of x */
    fx_instr p[3] = {instruction(FX_OP_LT, FX_DTYPE_BOOL, FX_DTYPE_F32, 2),
                     instruction(FX_OP_CAST, FX_DTYPE_F32, FX_DTYPE_I64, 1),
                     instruction(FX_OP_SELECT, FX_DTYPE_F32, FX_DTYPE_F32, 3)};
    p[1].src[0] = 2;
    p[2].src[0] = 3, p[2].src[1] = 4, p[2].src[2] = 0;
    operand x = make_operand(FX_DTYPE_F32, DENSE, SHAPE(1000)),
            y = make_operand(FX_DTYPE_F32, NEGATIVE, SHAPE(1000));
    operand i64 = make_operand(FX_DTYPE_I64, GAPS, SHAPE(1000));
    double want[1000];
    for (int64_t i = 0; i < 1000; i++)
        want[i] = element(&x, i) < element(&y, i) ? element(&i64, i) : element(&x, i);
    assert_int_equal(run_program(p, 3, 3, (const operand *[]){&x, &y, &i64}, &x).status, FX_OK);
    for (int64_t i = 0; i < 1000; i++)
        assert_true(element(&x, i) == want[i]);
    drop_operand(&x), drop_operand(&y), drop_operand(&i64);
}

static double rounded(int type, double v)
{
    return type == FX_DTYPE_F16   ? (double)fxi_f16_to_f32(fxi_f32_to_f16((float)v))
           : type == FX_DTYPE_F32 ? (double)(float)v
                                  : v;
}

/* y = (x − a)·b + c, and a choice between x and d, where a to d are the same for the first axis,
 * the first two, or the last: short and long runs, runs that do not divide each other, and
 * Float16 beside them. */
static void values_of_runs(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{16, 3, 5},  {64, 2, 3},  {100, 1, 7}, {257, 2, 2},
                                       {1, 300, 4}, {33, 20, 3}, {5, 2, 2},   {4096, 3, 2}};
    static const uint8_t types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t t = 0; t < sizeof types; t++) {
            const int64_t *n = sizes[k], length = n[0] * n[1] * n[2];
            const int type = types[t];
            fx_instr p[] = {instruction(FX_OP_SUB, type, type, 2),
                            instruction(FX_OP_MUL, type, type, 2),
                            instruction(FX_OP_ADD, type, type, 2),
                            instruction(FX_OP_LT, FX_DTYPE_BOOL, type, 2),
                            instruction(FX_OP_SELECT, type, type, 3)};
            p[1].src[0] = 5, p[1].src[1] = 2;
            p[2].src[0] = 3, p[2].src[1] = 6; /* c + …: the scalar is the first operand */
            p[3].src[0] = 4, p[3].src[1] = 7;
            p[4].src[0] = 8, p[4].src[1] = 4, p[4].src[2] = 7;
            operand x = make_operand(type, DENSE, 3, n), out = make_operand(type, DENSE, 3, n);
            operand of[4];
            static const int64_t step[4][3] = {{0, 1, 0}, {0, 0, 1}, {0, 1, 1}, {0, 0, 1}};
            for (int i = 0; i < 4; i++) {
                of[i] = make_operand(type, DENSE, 3, n);
                for (int d = 0; d < 3; d++)
                    of[i].t.stride[d] = step[i][d];
            }
            assert_int_equal(
                run_program(p, 5, 5, (const operand *[]){&x, &of[0], &of[1], &of[2], &of[3]}, &out)
                    .status,
                FX_OK);
            for (int64_t e = 0; e < length; e++) {
                const double a = element(&of[0], e), b = element(&of[1], e);
                const double c = element(&of[2], e), d = element(&of[3], e);
                double y = rounded(type, element(&x, e) - a);
                y = rounded(type, y * b);
                y = rounded(type, c + y);
                assert_true(element(&out, e) == (d < y ? d : y));
            }
            drop_operand(&x), drop_operand(&out);
            for (int i = 0; i < 4; i++)
                drop_operand(&of[i]);
        }
}

/* y = x·a + b, where x and b are the first rows of longer arrays and a has a number for each
 * column: tiles end where the rows end. Also in threads, whose parts begin within a row. */
static void rows_of_slices(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{64, 3},  {100, 5}, {128, 32}, {255, 2},
                                       {256, 3}, {300, 7}, {700, 2},  {4096, 2}};
    static const uint8_t types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16};
    const int threads = fx_num_threads();
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++)
        for (size_t t = 0; t < sizeof types; t++) {
            const int64_t *n = sizes[k / 2];
            const int type = types[t];
            fx_instr p[] = {instruction(FX_OP_MUL, type, type, 2),
                            instruction(FX_OP_ADD, type, type, 2)};
            p[1].src[0] = 3, p[1].src[1] = 2;
            operand x = make_operand(type, DENSE, SHAPE(n[0] + 5, n[1])),
                    a = make_operand(type, DENSE, SHAPE(n[0], n[1])),
                    b = make_operand(type, DENSE, SHAPE(n[0] + 64, n[1])),
                    out = make_operand(type, DENSE, SHAPE(n[0], n[1]));
            x.t.shape[0] = b.t.shape[0] = n[0];
            a.t.stride[0] = 0, a.t.stride[1] = 1;
            fx_set_num_threads(k % 2 ? 3 : 1);
            fxi_cpu_parts_from(k % 2 ? 0 : FXI_PARTS_FROM);
            assert_int_equal(run_program(p, 2, 3, (const operand *[]){&x, &a, &b}, &out).status,
                             FX_OK);
            for (int64_t e = 0; e < n[0] * n[1]; e++) {
                const double product = rounded(type, element(&x, e) * element(&a, e));
                assert_true(element(&out, e) == rounded(type, product + element(&b, e)));
            }
            drop_operand(&x), drop_operand(&a), drop_operand(&b), drop_operand(&out);
        }
    fxi_cpu_parts_from(FXI_PARTS_FROM);
    fx_set_num_threads(threads);
}

/* ---- results that bypass the caches ------------------------------------------------------------
 */
enum { STREAMED = 1000, ROUNDED_UP = STREAMED + 32 };

/* Runs the program with args.stream for elements from … to − 1; the result begins `skip` elements
 * after a cache line. The elements around it keep their values. */
static void check_streamed(const fxi_program *p, const void *const *in, const float *const *wanted,
                           int nout, int skip, int64_t from, int64_t to)
{
    static _Alignas(64) float out[2][ROUNDED_UP];
    void *const outs[] = {out[0] + skip, out[1] + skip};
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < ROUNDED_UP; i++)
            out[o][i] = -7;
    fxi_program_run(
        p, &(fxi_program_args){.in = in, .out = outs, .from = from, .to = to, .stream = true});
    for (int o = 0; o < nout; o++)
        for (int64_t i = 0; i < ROUNDED_UP; i++) {
            const int64_t k = i - skip;
            assert_true(out[o][i] == (k >= from && k < to ? wanted[o][k] : -7));
        }
}

/* x ∘ y for each operation with such a loop, and for two without one; y or x may be one number. */
static void streamed_results(void **state)
{
    static const struct {
        fx_op op;
        double (*ref)(double, double);
    } ops[] = {{FX_OP_ADD, ref_add},
               {FX_OP_SUB, ref_sub},
               {FX_OP_MUL, ref_mul},
               {FX_OP_DIV, ref_div},
               {FX_OP_MAX, ref_max}};
    static float x[STREAMED], y[STREAMED], first[STREAMED], second[STREAMED];
    const fx_tensor vector = {.dtype = FX_DTYPE_F32, .ndim = 1, .shape = {STREAMED}, .stride = {1}},
                    number = {.dtype = FX_DTYPE_F32, .ndim = 0};
    const char *const isa[] = {"base", "avx2", "avx512"}, *before = fxi_cpu_simd()->name;
    int runs = 0;
    (void)state;
    for (int i = 0; i < STREAMED; i++) {
        x[i] = 0.01F * (float)(i % 397) - 2;
        y[i] = 0.003F * (float)(i % 211) + 0.5F;
    }
    for (size_t s = 0; s < sizeof isa / sizeof isa[0]; s++) {
        if (!fxi_cpu_simd_choose(isa[s]))
            continue;
        for (size_t k = 0; k < sizeof ops / sizeof ops[0]; k++)
            for (int form = 0; form < 3; form++) {
                const fx_tensor in[] = {form == 2 ? number : vector, form == 1 ? number : vector};
                /* z = x ∘ y; both −x·y, which is not the last result, and z are outputs. */
                const fx_instr program[] = {{.op = FX_OP_MUL,
                                             .dtype = FX_DTYPE_F32,
                                             .from = FX_DTYPE_F32,
                                             .nsrc = 2,
                                             .src = {1, 0}},
                                            {.op = (uint8_t)ops[k].op,
                                             .dtype = FX_DTYPE_F32,
                                             .from = FX_DTYPE_F32,
                                             .nsrc = 2,
                                             .src = {0, 1}}};
                for (int nout = 1; nout <= 2; nout++) {
                    const fxi_program_spec spec = {
                        .program = {(fx_instr *)(uintptr_t)(program + 2 - nout), nout},
                        .nin = 2,
                        .nout = nout,
                        .in = in,
                        .length = STREAMED,
                        .out = {(uint8_t)(1 + nout), 2}};
                    const float *const wanted[] = {first, second};
                    void *p = NULL;
                    for (int i = 0; i < STREAMED; i++) {
                        const float a = x[form == 2 ? 0 : i], b = y[form == 1 ? 0 : i];
                        first[i] = (float)ops[k].ref(a, b);
                        second[i] = b * a;
                    }
                    assert_int_equal(fxi_program_make(&spec, &p), FX_OK);
                    for (int skip = 0; skip < 17; skip += skip < 3 ? 1 : 7)
                        for (int64_t from = 0; from <= 512; from += 256) {
                            check_streamed(p, (const void *[]){x, y}, wanted, nout, skip, from,
                                           STREAMED);
                            check_streamed(p, (const void *[]){x, y}, wanted, nout, skip, from,
                                           from + 1 + skip);
                            runs += 2;
                        }
                    fxi_program_free(p);
                }
            }
    }
    assert_true(fxi_cpu_simd_choose(before));
    print_message("%d runs\n", runs);
    assert_true(runs >= 900);
}

/* Each loop that bypasses the caches gives the bits of its pair, and writes nothing else. */
static void streamed_loops(void **state)
{
    static _Alignas(64) float wanted[ROUNDED_UP], got[ROUNDED_UP];
    static float operands[3][STREAMED];
    static const int lengths[] = {1, 2, 15, 16, 17, 63, 256, 300, 999};
    const char *const isa[] = {"base", "avx2", "avx512"}, *before = fxi_cpu_simd()->name;
    int compared = 0;
    (void)state;
    for (int i = 0; i < STREAMED; i++)
        for (int k = 0; k < 3; k++)
            operands[k][i] = 0.37F * (float)((i * (k + 3)) % 91) - 11.3F;
    for (size_t s = 0; s < sizeof isa / sizeof isa[0]; s++) {
        if (!fxi_cpu_simd_choose(isa[s]))
            continue;
        for (const fxi_tile_fn(*pair)[2] = fxi_cpu_simd()->streamed; (*pair)[0]; pair++)
            for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
                for (int skip = 0; skip < 17; skip++) {
                    const void *const src[] = {operands[0], operands[1] + skip % 2, operands[2]};
                    for (int i = 0; i < ROUNDED_UP; i++)
                        wanted[i] = got[i] = -7;
                    (*pair)[0](wanted + skip, src, lengths[l], 0);
                    (*pair)[1](got + skip, src, lengths[l], 0);
                    fxi_cpu_simd()->stream_end();
                    assert_memory_equal(wanted, got, sizeof got);
                    compared++;
                }
    }
    assert_true(fxi_cpu_simd_choose(before));
    print_message("%d comparisons\n", compared);
#if defined(__x86_64__)
    assert_true(compared >= 1000);
#endif
}

static void unknown_combination_is_an_error(void **state)
{
    (void)state;
    operand x = make_operand(FX_DTYPE_BOOL, DENSE, SHAPE(3)),
            out = make_operand(FX_DTYPE_BOOL, DENSE, SHAPE(3));
    const fx_instr ins = instruction(FX_OP_EXP, FX_DTYPE_BOOL, FX_DTYPE_BOOL, 1);
    assert_int_equal(run_program(&ins, 1, 1, (const operand *[]){&x}, &out).status,
                     FX_STATUS_UNSUPPORTED);
    drop_operand(&x), drop_operand(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_op_type_and_layout),
    cmocka_unit_test(scalars_and_select),
    cmocka_unit_test(max_and_min_propagate_nan),
    cmocka_unit_test(integer_rules),
    cmocka_unit_test(casts_saturate_and_wrap),
    cmocka_unit_test(casts_between_all_types),
    cmocka_unit_test(halves_round_to_nearest_even),
    cmocka_unit_test(many_registers),
    cmocka_unit_test(two_instructions_round_twice),
    cmocka_unit_test(random_programs_round_every_instruction),
    cmocka_unit_test(half_programs_round_every_instruction),
    cmocka_unit_test(mixed_types_in_place),
    cmocka_unit_test(values_of_runs),
    cmocka_unit_test(rows_of_slices),
    cmocka_unit_test(streamed_results),
    cmocka_unit_test(streamed_loops),
    cmocka_unit_test(unknown_combination_is_an_error),
};
RUN_ON_EVERY_ISA(tests)
