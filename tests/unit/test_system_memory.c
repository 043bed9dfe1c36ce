/* test_system_memory.c: memory of the system, and which pages of it can be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "memory.h"
#include "system_memory.h"
#include <pthread.h>

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

/* Writes a text to root/path and makes the folders. */
static void put(const char *root, const char *path, const char *text)
{
    char whole[400];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = 0;
        assert_true(mkdir(whole, 0700) == 0 || errno == EEXIST);
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

enum { MIB = 1 << 20, FILES = 6 };
static const struct group_case {
    const char *name, *files[FILES][2]; /* path, text */
    int64_t limit, left;                /* MiB */
} group_cases[] = {
    {"no cgroups", {{0}}, -1, -1},
    {"version 2 without a limit",
     {{"proc/self/cgroup", "0::/a/b\n"}, {"sys/fs/cgroup/a/b/memory.max", "max\n"}},
     -1,
     -1},
    {"version 2, the group itself, with pages of files",
     {{"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/memory.max", "104857600\n"},
      {"sys/fs/cgroup/a/b/memory.current", "83886080\n"},
      {"sys/fs/cgroup/a/b/memory.stat", "anon 52428800\nactive_file 1\ninactive_file 31457280\n"}},
     100,
     50},
    {"version 2, a group above has less left",
     {{"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/memory.max", "104857600\n"},
      {"sys/fs/cgroup/a/b/memory.current", "10485760\n"},
      {"sys/fs/cgroup/a/memory.max", "209715200\n"},
      {"sys/fs/cgroup/a/memory.current", "199229440\n"}},
     100,
     10},
    {"version 2, the root of a container",
     {{"proc/self/cgroup", "0::/not/here\n"},
      {"sys/fs/cgroup/memory.max", "104857600\n"},
      {"sys/fs/cgroup/memory.current", "209715200\n"}},
     100,
     0},
    {"version 1, a group among others",
     {{"proc/self/cgroup", "9:name=systemd:/x\n5:cpu,memory:/a\n4:memory2:/b\n0::/\n"},
      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n"},
      {"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "31457280\n"},
      {"sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 10485760\n"},
      {"sys/fs/cgroup/memory/b/memory.limit_in_bytes", "1\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}},
     100,
     80},
    {"both versions",
     {{"proc/self/cgroup", "4:memory:/a\n0::/b\n"},
      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "209715200\n"},
      {"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "199229440\n"},
      {"sys/fs/cgroup/b/memory.max", "104857600\n"},
      {"sys/fs/cgroup/b/memory.current", "10485760\n"}},
     100,
     10},
};

/* The numbers are the differences of the files' numbers: limit − usage + pages that can be dropped.
 */
static void limits_of_cgroups_count(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof group_cases / sizeof *group_cases; i++) {
        const struct group_case *c = &group_cases[i];
        char root[] = "/tmp/cflux-cgroup-XXXXXX", command[64];
        int64_t limit, left, alone;
        assert_non_null(mkdtemp(root));
        for (int k = 0; k < FILES && c->files[k][0]; k++)
            put(root, c->files[k][0], c->files[k][1]);
        fxi_cgroup_memory(root, &limit, &left);
        fxi_cgroup_memory(root, &alone, NULL);
        snprintf(command, sizeof command, "rm -r %s", root);
        assert_int_equal(system(command), 0);
        const int64_t unit_limit = c->limit < 0 ? -1 : c->limit * MIB,
                      unit_left = c->left < 0 ? -1 : c->left * MIB;
        if (limit != unit_limit || left != unit_left || alone != limit)
            fail_msg("%s: limit %lld, left %lld", c->name, (long long)limit, (long long)left);
    }
}

/* ---- blocks that a thread keeps for the next node ---------------------------------------------
 */

enum { BLOCKS = FXI_MOST_SPARES + 1000, BLOCK = FXI_SPARE_BYTES - 8 };
static void *blocks[BLOCKS];

static void *allocate_blocks(void *unused)
{
    (void)unused;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = fxi_spare_malloc(BLOCK);
        if (blocks[i])
            memset(blocks[i], i & 0xff, BLOCK);
    }
    return NULL;
}

static void *free_blocks(void *unused)
{
    (void)unused;
    for (int i = 0; i < BLOCKS; i++)
        fxi_spare_free(blocks[i]);
    return NULL;
}

/* More blocks than the thread keeps, twice, so that kept ones are given out again. */
static void kept_blocks_count_as_free(void **state)
{
    (void)state;
    fxi_memory_reclaim();
    const int64_t live = fxi_live_allocations(), held = fxi_memory_held_here();
    for (int round = 0; round < 2; round++) {
        allocate_blocks(NULL);
        assert_int_equal(fxi_live_allocations(), live + BLOCKS);
        assert_int_equal(fxi_memory_held_here(), held + (int64_t)BLOCKS * FXI_SPARE_BYTES);
        for (int i = 0; i < BLOCKS; i++) {
            assert_non_null(blocks[i]);
            assert_int_equal(*(unsigned char *)blocks[i], i & 0xff); /* no block twice */
        }
        free_blocks(NULL);
        assert_int_equal(fxi_live_allocations(), live);
        assert_int_equal(fxi_memory_held_here(), held);
        if (fxi_own_spares != &fxi_no_spares) /* caching is on */
            assert_true(fxi_memory_cached() >= (size_t)FXI_MOST_SPARES * FXI_SPARE_BYTES);
    }
    fxi_memory_reclaim();
    assert_int_equal(fxi_memory_cached(), 0);
    assert_int_equal(fxi_live_allocations(), live);
}

/* One thread allocates and another one frees, in both directions; the other thread ends with kept
 * blocks. */
static void kept_blocks_of_a_thread_that_ends(void **state)
{
    (void)state;
    const int64_t live = fxi_live_allocations();
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        if (round == 0)
            allocate_blocks(NULL);
        assert_int_equal(
            pthread_create(&thread, NULL, round == 0 ? free_blocks : allocate_blocks, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (round == 1) {
            assert_int_equal(fxi_live_allocations(), live + BLOCKS);
            free_blocks(NULL);
        }
        assert_int_equal(fxi_live_allocations(), live);
    }
    fxi_memory_reclaim();
    assert_int_equal(fxi_live_allocations(), live);
}

/* ---- blocks that wait before they are used again: handles -------------------------------------
 */

enum { WAIT = FXI_SPARES_WAIT, LATE_BLOCK = FXI_SPARE_LATE_BYTES - 8 };

static void free_late(int i)
{
    if (fxi_spares_want_late(fxi_own_spares))
        fxi_spares_add_late(fxi_own_spares, blocks[i]);
    else
        fxi_free_late(blocks[i], WAIT, LATE_BLOCK);
}

static void allocate_late(int i)
{
    blocks[i] = fxi_spares_have_late(fxi_own_spares) ? fxi_spares_take_late(fxi_own_spares)
                                                     : fxi_malloc_late(LATE_BLOCK, WAIT);
    assert_non_null(blocks[i]);
    memset(blocks[i], i & 0xff, LATE_BLOCK);
}

/* The WAIT blocks that were freed last keep their bytes and are not given out. */
static void freed_handles_wait(void **state)
{
    (void)state;
    const int64_t live = fxi_live_allocations(), held = fxi_memory_held_here();
    for (int i = 0; i < 2 * WAIT; i++)
        allocate_late(i);
    assert_int_equal(fxi_live_allocations(), live + 2 * WAIT);
    assert_int_equal(fxi_memory_held_here(), held + 2 * WAIT * FXI_SPARE_LATE_BYTES);
    for (int i = 0; i < 2 * WAIT; i++)
        free_late(i);
    assert_int_equal(fxi_live_allocations(), live);
    assert_int_equal(fxi_memory_held_here(), held);
    for (int i = 2 * WAIT; i < 5 * WAIT; i++)
        allocate_late(i);
    for (int i = WAIT; i < 2 * WAIT; i++) {
        for (int k = 2 * WAIT; k < 5 * WAIT; k++)
            assert_ptr_not_equal(blocks[k], blocks[i]);
        assert_int_equal(*(unsigned char *)blocks[i], i & 0xff);
        assert_int_equal(((unsigned char *)blocks[i])[LATE_BLOCK - 1], i & 0xff);
    }
    for (int i = 2 * WAIT; i < 5 * WAIT; i++) {
        assert_int_equal(*(unsigned char *)blocks[i], i & 0xff); /* no block twice */
        free_late(i);
    }
    assert_int_equal(fxi_live_allocations(), live);
    assert_int_equal(fxi_memory_held_here(), held);
}

static void *free_all_late(void *unused)
{
    (void)unused;
    for (int i = 0; i < BLOCKS; i++)
        free_late(i);
    return NULL;
}

/* More blocks than the thread keeps. It ends, and so do those that wait. */
static void waiting_handles_of_a_thread_that_ends(void **state)
{
    (void)state;
    const int64_t live = fxi_live_allocations();
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        for (int i = 0; i < BLOCKS; i++)
            allocate_late(i);
        assert_int_equal(fxi_live_allocations(), live + BLOCKS);
        if (round == 0)
            free_all_late(NULL);
        else
            assert_int_equal(pthread_create(&thread, NULL, free_all_late, NULL), 0);
        if (round == 1)
            assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(fxi_live_allocations(), live);
    }
}

/* ---- allocations that fail ------------------------------------------------------------------- */

static pthread_barrier_t both;

/* Keeps blocks of both kinds, and allocates two of each after the main thread has asked for a
 * failure. */
static void *allocate_two(void *unused)
{
    (void)unused;
    allocate_blocks(NULL);
    free_blocks(NULL);
    for (int i = 0; i < 2 * WAIT; i++)
        allocate_late(i);
    for (int i = 0; i < 2 * WAIT; i++)
        free_late(i);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    for (int i = 0; i < 2; i++) {
        blocks[i] = fxi_spare_malloc(BLOCK);
        allocate_late(2 + i);
    }
    pthread_barrier_wait(&both);
    for (int i = 0; i < 2; i++) {
        fxi_spare_free(blocks[i]);
        free_late(2 + i);
    }
    return NULL;
}

/* A thread does not take a block that it keeps past a failure that another thread asks for. */
static void failures_reach_kept_blocks(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, allocate_two, NULL), 0);
    pthread_barrier_wait(&both);
    fxi_fault_set(INT64_MAX);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    assert_int_equal(fxi_fault_seen(), 4);
    fxi_fault_set(-1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&both), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_readable_or_not),
        cmocka_unit_test(memory_is_aligned_as_asked),
        cmocka_unit_test(the_machine_has_memory),
        cmocka_unit_test(a_limit_counts),
        cmocka_unit_test(limits_of_cgroups_count),
        cmocka_unit_test(kept_blocks_count_as_free),
        cmocka_unit_test(kept_blocks_of_a_thread_that_ends),
        cmocka_unit_test(freed_handles_wait),
        cmocka_unit_test(waiting_handles_of_a_thread_that_ends),
        cmocka_unit_test(failures_reach_kept_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
