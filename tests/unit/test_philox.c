/* test_philox.c: the generator against the known answers that its authors publish (Random123,
 * examples/kat_vectors, philox4x32 with 10 rounds): counter words, key words, result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "philox.h"

typedef struct answer {
    uint64_t key, hi, lo;
    uint32_t out[4];
} answer;

static void known_answers(void **state)
{
    static const answer answers[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t k = 0; k < sizeof answers / sizeof *answers; k++) {
        uint32_t out[4];
        fxi_philox(answers[k].key, answers[k].hi, answers[k].lo, out);
        for (int w = 0; w < 4; w++)
            assert_int_equal(out[w], answers[k].out[w]);
    }
}

static void uniforms(void **state)
{
    (void)state;
    assert_true(fxi_uniform32(0) == 0 && fxi_uniform32(UINT32_MAX) == 1 - 0x1p-24f);
    assert_true(fxi_uniform64(0, 0) == 0 && fxi_uniform64(UINT32_MAX, UINT32_MAX) == 1 - 0x1p-53);
    assert_true(fxi_uniform64(0x80000000, 0) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers), cmocka_unit_test(uniforms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
