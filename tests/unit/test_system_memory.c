/* test_system_memory.c: memory of the system, and which pages of it can be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "system_memory.h"

static void pages_are_readable_or_not(void **state)
{
    (void)state;
    const size_t page = fxi_page_bytes();
    assert_true(page >= 4096 && page % 4096 == 0);
    char *pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    assert_int_equal(munmap(pages + 2 * page, page), 0);
    assert_true(fxi_page_readable((uintptr_t)pages));
    assert_false(fxi_page_readable((uintptr_t)(pages + page)));
    assert_false(fxi_page_readable((uintptr_t)(pages + 2 * page)));
    assert_int_equal(munmap(pages, 2 * page), 0);
}

static void memory_is_aligned_as_asked(void **state)
{
    (void)state;
    for (size_t alignment = 64; alignment <= (size_t)2 << 20; alignment *= 8) {
        char *p = fxi_system_alloc(alignment, 1000);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignment, 0);
        p[0] = p[999] = 1;
        fxi_system_free(p, true);
    }
    void *plain = fxi_system_alloc(0, 10);
    assert_non_null(plain);
    fxi_system_free(plain, false);
}

static void the_machine_has_memory(void **state)
{
    (void)state;
    int64_t total, available;
    fxi_system_memory(&total, &available);
    assert_true(total > 0);
    assert_true(available == -1 || (available > 0 && available <= total));
}

/* A limit of the address space counts as the memory of the machine. */
static void a_limit_counts(void **state)
{
    (void)state;
    enum { LEFT = 64 << 20, SLACK = 16 << 20 };
    int64_t machine, total, available;
    long long pages = 0;
    struct rlimit before, limit;
    fxi_system_memory(&machine, &available);
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld", &pages), 1);
    fclose(f);
    const int64_t used = pages * (int64_t)fxi_page_bytes();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)(used + LEFT);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    fxi_system_memory(&total, &available);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    if (limit.rlim_cur != (rlim_t)(used + LEFT)) {
        printf("skipped: the emulator does not limit the address space\n");
        return;
    }
    assert_true(total == (used + LEFT < machine ? used + LEFT : machine));
    assert_true(available >= 0 && available <= LEFT + SLACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_readable_or_not),
        cmocka_unit_test(memory_is_aligned_as_asked),
        cmocka_unit_test(the_machine_has_memory),
        cmocka_unit_test(a_limit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
