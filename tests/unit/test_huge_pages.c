/* test_huge_pages.c: which new memory asks for huge pages, after fast and slow trials. ctest: once
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "huge_pages.h"
#include "memory.h"

#define MIB ((size_t)1 << 20)
enum { FAST = 200 * 1000, TOO_SLOW = 8000 * 1000, USED = 1000 };

/* The requests that the policy made. */
static int64_t nanoseconds; /* that the next trials take */
static size_t requested;
static int trials;

static void count_request(void *at, size_t bytes)
{
    (void)at;
    requested += bytes;
}

static int64_t count_trial(void *at)
{
    (void)at;
    trials++;
    return nanoseconds;
}

static const fxi_huge_pages_calls calls = {count_request, count_trial};
static fxi_huge_pages pages;

/* Are this many bytes of huge pages requested, and this many trials made, for new memory? */
static void expect(int64_t took, size_t bytes, size_t want_requested, int want_trials)
{
    nanoseconds = took, requested = 0, trials = 0;
    fxi_huge_pages_request(&pages, &calls, NULL, bytes);
    assert_int_equal(requested, want_requested);
    assert_int_equal(trials, want_trials);
}

static void fast_pages_are_huge(void **state)
{
    (void)state;
    pages = (fxi_huge_pages){0};
    expect(FAST, 4 * MIB, 4 * MIB, 1);
    expect(FAST, 100 * MIB, 100 * MIB, 7); /* 6 pieces of 16 MiB and one of 4 */
    expect(FAST, 0, 0, 0);
}

static void a_slow_page_pauses_the_requests(void **state)
{
    (void)state;
    pages = (fxi_huge_pages){0};
    expect(TOO_SLOW, 16 * MIB, 0, 1);
    expect(FAST, 64 * MIB, 0, 0);        /* the pause */
    expect(FAST, 32 * MIB, 32 * MIB, 2); /* fast again */
    expect(TOO_SLOW, 80 * MIB, 0, 1);    /* the pause is 64 MiB again */
    expect(TOO_SLOW, 16 * MIB, 0, 1);    /* now 128 MiB */
    expect(USED, 128 * MIB, 0, 0);       /* nothing is tried in a pause */
    expect(USED, 16 * MIB, 16 * MIB, 1); /* used memory says nothing about new pages: */
    expect(TOO_SLOW, 16 * MIB, 0, 1);    /* 256 MiB, not 64 */
    expect(FAST, 256 * MIB, 0, 0);
    expect(FAST, 16 * MIB, 16 * MIB, 1);
}

static void the_longest_pause_is_a_gibibyte(void **state)
{
    (void)state;
    pages = (fxi_huge_pages){0};
    for (size_t pause = 64; pause <= 1024; pause *= 2)
        expect(TOO_SLOW, (16 + pause) * MIB, 0, 1);
    expect(TOO_SLOW, (16 + 1024) * MIB, 0, 1);
    expect(FAST, 16 * MIB, 16 * MIB, 1);
}

static void a_system_without_huge_pages_is_asked_rarely(void **state)
{
    (void)state;
    pages = (fxi_huge_pages){0};
    expect(-1, 3000 * MIB, 0, 6); /* after 0, 80, 224, 496, 1024 and 2064 MiB */
}

/* All bytes of blocks of any kind and size belong to the caller. */
static void blocks_hold_their_bytes(void **state)
{
    (void)state;
    static const size_t sizes[] = {4 * MIB, 4 * MIB + 1, 18 * MIB, 33 * MIB + 100};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int aligned = 0; aligned < 2; aligned++) {
            unsigned char *p = aligned ? fxi_aligned(64, sizes[i]) : fxi_malloc(sizes[i]);
            assert_non_null(p);
            memset(p, 7, sizes[i]);
            for (size_t k = 0; k < sizes[i]; k += 4096)
                assert_int_equal(p[k], 7);
            fxi_free(p);
        }
    assert_int_equal(fxi_live_allocations(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_pages_are_huge),
        cmocka_unit_test(a_slow_page_pauses_the_requests),
        cmocka_unit_test(the_longest_pause_is_a_gibibyte),
        cmocka_unit_test(a_system_without_huge_pages_is_asked_rarely),
        cmocka_unit_test(blocks_hold_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
