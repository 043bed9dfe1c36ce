/* Generators on the CPU: Philox4x32-10 against the vectors published with Random123 (kat_vectors),
 * the mapping of elements to words, ranges and moments; indices along every axis in every type. */
#include "cpu_check.h"
#include "philox.h"

static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint64_t key, hi, lo;
        uint32_t want[4];
    } kat[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {UINT64_C(0x299f31d0a4093822),
         UINT64_C(0x0370734413198a2e),
         UINT64_C(0x85a308d3243f6a88),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t k = 0; k < sizeof kat / sizeof *kat; k++) {
        uint32_t w[4];
        fxi_philox(kat[k].key, kat[k].hi, kat[k].lo, w);
        assert_memory_equal(w, kat[k].want, sizeof w);
    }
}

static operand random_operand(int dtype, int64_t n, uint64_t seed, uint64_t counter)
{
    operand out = make_operand(dtype, DENSE, SHAPE(n));
    const uint64_t streams[2][2] = {{99, 99}, {seed, counter}};
    const fx_step step = {
        .op = FX_OP_RANDOM, .cls = FX_CLASS_GENERATOR, .out = out.t, .as.generator.stream = 1};
    fx_run run = {.streams = streams};
    assert_int_equal(fxi_cpu_run_step(&step, NULL, out.data, &run), FX_OK);
    check_guards(&out);
    return out;
}

static void elements_are_words_of_blocks(void **state)
{
    (void)state;
    /* 259: more than several vectors of every instruction set, and a rest. */
    for (int64_t n = 0; n < 260; n = n == 10 ? 259 : n + 1) {
        operand f32 = random_operand(FX_DTYPE_F32, n, 7, 1234),
                f64 = random_operand(FX_DTYPE_F64, n, 7, 1234);
        operand f16 = random_operand(FX_DTYPE_F16, n, 7, 1234),
                bf16 = random_operand(FX_DTYPE_BF16, n, 7, 1234);
        for (int64_t i = 0; i < n; i++) {
            uint32_t w[4], v[4];
            fxi_philox(7, 1234, (uint64_t)i / 4, w);
            fxi_philox(7, 1234, (uint64_t)i / 2, v);
            assert_true(element(&f32, i) == floor(w[i % 4] / 256.0) / 0x1p24);
            assert_true(element(&f64, i) == ldexp(floor(ldexp((double)v[i % 2 * 2], 21) +
                                                        (double)(v[i % 2 * 2 + 1] >> 11)),
                                                  -53));
            assert_true(element(&f16, i) == floor(w[i % 4] / 0x1p21) / 0x1p11);
            assert_true(element(&bf16, i) == floor(w[i % 4] / 0x1p24) / 0x1p8);
        }
        drop_operand(&f32), drop_operand(&f64), drop_operand(&f16), drop_operand(&bf16);
    }
}

static void uniform_in_the_unit_interval(void **state)
{
    (void)state;
    static const int types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (int k = 0; k < 4; k++) {
        enum { N = 200000 };
        operand x = random_operand(types[k], N, 42, 5);
        double sum = 0, square = 0;
        for (int64_t i = 0; i < N; i++) {
            const double v = element(&x, i);
            assert_true(v >= 0 && v < 1);
            sum += v, square += v * v;
        }
        check_close(sum / N, 0.5, 0, 0.005);
        check_close(square / N - sum / N * sum / N, 1.0 / 12, 0, 0.002);
        drop_operand(&x);
    }
}

static void indices_along_axes(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++)
        for (int axis = 0; axis < 3; axis++)
            for (int64_t n = 0; n < 8; n += 7) {
                int64_t shape[] = {3, n, 2};
                operand out = make_operand(dtype, DENSE, 3, shape);
                run_step(FX_OP_IOTA, FX_CLASS_GENERATOR, (fx_attr){.axis = axis}, 0, NULL, &out);
                for (int64_t i = 0; i < length_of(&out); i++) {
                    const int64_t at[] = {i % 3, i / 3 % n, i / 3 / n};
                    assert_true(element(&out, i) ==
                                (dtype == FX_DTYPE_BOOL ? at[axis] != 0 : (double)at[axis]));
                }
                drop_operand(&out);
            }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(philox_known_answers),
    cmocka_unit_test(elements_are_words_of_blocks),
    cmocka_unit_test(uniform_in_the_unit_interval),
    cmocka_unit_test(indices_along_axes),
};
RUN_ON_EVERY_ISA(tests)
