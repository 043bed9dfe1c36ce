/* test_ref_value.c: parts of the ref backend that no other test checks: 16-bit conversions against
 * the library's conversions by bits (two methods that share no code) and against constants of IEEE
 * 754, saturation, wrapping, integer powers, and the index errors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "half.h"
#include "ref_kernels.h"

static double decode(int t, uint16_t bits)
{
    return fxi_ref_get(t, &bits, 0).real;
}
static uint16_t encode(int t, double x)
{
    uint16_t bits = 0;
    fxi_ref_put(t, &bits, 0, (fxi_ref_value){.real = x});
    return bits;
}

static void constants(void **state)
{
    (void)state;
    assert_int_equal(encode(FX_DTYPE_F16, 1), 0x3c00);
    assert_int_equal(encode(FX_DTYPE_F16, -2), 0xc000);
    assert_int_equal(encode(FX_DTYPE_F16, 65504), 0x7bff);
    assert_int_equal(encode(FX_DTYPE_F16, 65519.99), 0x7bff);
    assert_int_equal(encode(FX_DTYPE_F16, 65520), 0x7c00);
    assert_int_equal(encode(FX_DTYPE_F16, 0x1p-24), 1);
    assert_int_equal(encode(FX_DTYPE_F16, 0x1p-25), 0);
    assert_int_equal(encode(FX_DTYPE_F16, 0x1.8p-24), 2);
    assert_int_equal(encode(FX_DTYPE_F16, 1.0 / 3), 0x3555);
    assert_int_equal(encode(FX_DTYPE_F16, -0.0), 0x8000);
    assert_int_equal(encode(FX_DTYPE_BF16, 1), 0x3f80);
    assert_int_equal(encode(FX_DTYPE_BF16, 3.140625), 0x4049);
    assert_int_equal(encode(FX_DTYPE_BF16, 1.00390625), 0x3f80); /* a tie, to even */
    assert_int_equal(encode(FX_DTYPE_BF16, 1.01171875), 0x3f82); /* a tie, to even */
    assert_true(isnan(decode(FX_DTYPE_F16, 0x7e00)) && isnan(decode(FX_DTYPE_BF16, 0x7fc0)));
}

static void all_bit_patterns(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 65536; u++) {
        const uint16_t h = (uint16_t)u;
        const double a = decode(FX_DTYPE_F16, h), b = (double)fxi_f16_to_f32(h);
        const double c = decode(FX_DTYPE_BF16, h), d = (double)fxi_bf16_to_f32(h);
        assert_true((isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)));
        assert_true((isnan(c) && isnan(d)) || (c == d && signbit(c) == signbit(d)));
        assert_true(isnan(a) || encode(FX_DTYPE_F16, a) == h);
        assert_true(isnan(c) || encode(FX_DTYPE_BF16, c) == h);
    }
}

/* Every 4099th float: all exponents, many ties. */
static void floats_round_alike(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < 0x100000000u; u += 4099) {
        const float f = fxi_float((uint32_t)u);
        if (isnan(f))
            continue;
        assert_int_equal(encode(FX_DTYPE_F16, (double)f), fxi_f32_to_f16(f));
        assert_int_equal(encode(FX_DTYPE_BF16, (double)f), fxi_f32_to_bf16(f));
    }
}

static int64_t to_integer(int t, double x)
{
    return fxi_ref_convert(t, FX_DTYPE_F64, (fxi_ref_value){.real = x}).integer;
}

static void conversions(void **state)
{
    (void)state;
    assert_int_equal(to_integer(FX_DTYPE_I32, 2.9), 2);
    assert_int_equal(to_integer(FX_DTYPE_I32, -2.9), -2);
    assert_int_equal(to_integer(FX_DTYPE_I32, 1e10), INT32_MAX);
    assert_int_equal(to_integer(FX_DTYPE_I32, -INFINITY), INT32_MIN);
    assert_int_equal(to_integer(FX_DTYPE_I64, 0x1p63), INT64_MAX);
    assert_int_equal(to_integer(FX_DTYPE_I64, -1e300), INT64_MIN);
    assert_int_equal(to_integer(FX_DTYPE_U8, -1), 0);
    assert_int_equal(to_integer(FX_DTYPE_U8, 255.9), 255);
    assert_int_equal(to_integer(FX_DTYPE_U8, 256), 255);
    assert_int_equal(to_integer(FX_DTYPE_I64, NAN), 0);
    assert_int_equal(to_integer(FX_DTYPE_BOOL, NAN), 1);
    assert_int_equal(to_integer(FX_DTYPE_BOOL, 0.25), 1);
    assert_int_equal(fxi_ref_wrap(FX_DTYPE_U8, 300), 44);
    assert_int_equal(fxi_ref_wrap(FX_DTYPE_I32, INT64_C(1) << 31), INT32_MIN);
    /* 2⁶⁰ + 2³⁶ + 1: through double it would become a tie and round down. */
    const fxi_ref_value big =
        fxi_ref_number(FX_DTYPE_F32, (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1);
    assert_true(big.real == 0x1p60 + 0x1p37);
}

static fx_tensor tensor(int t, int ndim, const int64_t *sizes)
{
    fx_tensor r = {.dtype = (uint8_t)t, .ndim = (uint8_t)ndim};
    int64_t stride = 1;
    for (int k = 0; k < ndim; k++) {
        r.shape[k] = sizes[k];
        r.stride[k] = stride;
        stride *= sizes[k];
    }
    return r;
}

static void index_errors(void **state)
{
    (void)state;
    const float x[10] = {0};
    const int64_t idx[2] = {0, 7};
    float out[4];
    fx_tensor in[2] = {tensor(FX_DTYPE_F32, 2, (int64_t[]){2, 5}),
                       tensor(FX_DTYPE_I64, 1, (int64_t[]){2})};
    fx_step s = {
        .op = FX_OP_GATHER, .cls = FX_CLASS_GATHER, .nin = 2, .in = in, .as.gather.axis = 1};
    fx_run run = {0};
    s.out = tensor(FX_DTYPE_F32, 2, (int64_t[]){2, 2});
    assert_int_equal(fxi_ref_run_step(&s, (const void *[]){x, idx}, out, &run), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message,
                        "gather: index 7 is out of range for axis 1 of size 5");
    in[0] = tensor(FX_DTYPE_F32, 2, (int64_t[]){2, 2});
    s.op = FX_OP_SCATTER, s.cls = FX_CLASS_SCATTER;
    s.as.scatter = (fx_scatter_step){.fold = FX_REDUCE_SUM, .axis = 1};
    s.out = tensor(FX_DTYPE_F32, 2, (int64_t[]){2, 2});
    assert_int_equal(fxi_ref_run_step(&s, (const void *[]){x, idx}, out, &run), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message,
                        "scatter: index 7 is out of range for axis 1 of size 2");
}

/* One instruction on two integers. */
static int64_t calculate(int op, int t, int64_t a, int64_t b)
{
    fx_tensor in[2] = {tensor(FX_DTYPE_I64, 0, NULL), tensor(FX_DTYPE_I64, 0, NULL)};
    fx_instr k = {
        .op = (uint8_t)op, .dtype = (uint8_t)t, .from = (uint8_t)t, .nsrc = 2, .src = {0, 1}};
    fx_step s = {.op = (uint8_t)op,
                 .cls = FX_CLASS_ELEMENTWISE,
                 .nin = 2,
                 .in = in,
                 .out = tensor(t, 0, NULL),
                 .as.elementwise.program = {&k, 1}};
    fx_run run = {0};
    int64_t out = 0;
    assert_int_equal(fxi_ref_run_step(&s, (const void *[]){&a, &b}, &out, &run), FX_OK);
    return t == FX_DTYPE_I32 ? (int64_t)(int32_t)out : out;
}

static void integers(void **state)
{
    (void)state;
    assert_int_equal(calculate(FX_OP_FLD, FX_DTYPE_I64, -7, 2), -4);
    assert_int_equal(calculate(FX_OP_FLD, FX_DTYPE_I64, 7, -2), -4);
    assert_int_equal(calculate(FX_OP_FLD, FX_DTYPE_I64, 7, 0), 0);
    assert_int_equal(calculate(FX_OP_FLD, FX_DTYPE_I64, INT64_MIN, -1), INT64_MIN);
    assert_int_equal(calculate(FX_OP_POW, FX_DTYPE_I64, -3, 5), -243);
    assert_int_equal(calculate(FX_OP_POW, FX_DTYPE_I64, -1, -3), -1);
    assert_int_equal(calculate(FX_OP_POW, FX_DTYPE_I64, 2, -1), 0);
    assert_int_equal(calculate(FX_OP_ADD, FX_DTYPE_I32, INT32_MAX, 1), INT32_MIN);
    assert_int_equal(calculate(FX_OP_MUL, FX_DTYPE_I64, INT64_MAX, 2), -2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants),          cmocka_unit_test(all_bit_patterns),
        cmocka_unit_test(floats_round_alike), cmocka_unit_test(conversions),
        cmocka_unit_test(index_errors),       cmocka_unit_test(integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
