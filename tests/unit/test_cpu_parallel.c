/* The thread pool: every part runs once, whatever the number of threads; several threads do take
 * part; threads that sleep; nested and concurrent calls; statuses; scratch; forks; signals; when
 * several threads are used. Parts run on other threads, so they count what is wrong and the test
 * asserts afterwards. ctest: threads native */
#include "clock.h"
#include "cores.h"
#include "cpu_check.h"
#include "cpu_parallel.h"
#include "cpu_threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int counts[] = {1, 2, 3, 5, 16};
#define FOR_THREADS(n)                                                                             \
    for (size_t which = 0, n = 0; which < 5 && (n = (size_t)counts[which]) > 0; which++)

static void use_threads(size_t n)
{
    assert_int_equal(fx_set_num_threads((int)n), FX_OK);
    assert_int_equal(fx_num_threads(), n);
}

static int back_to_default(void **state)
{
    (void)state;
    return fx_set_num_threads(0) == FX_OK ? 0 : 1;
}

static void count_part(void *user, int64_t part)
{
    __atomic_add_fetch((int *)user + part, 1, __ATOMIC_RELAXED);
}

static int wrong_counts(const int *runs, int64_t parts, int want)
{
    int wrong = 0;
    for (int64_t k = 0; k < parts; k++)
        wrong += runs[k] != want;
    return wrong;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void every_part_runs_once(void **state)
{
    (void)state;
    enum { MOST = 1000, ROUNDS = 200 };
    static int runs[MOST];
    FOR_THREADS(n)
    {
        use_threads(n);
        for (int64_t parts = 0; parts <= MOST; parts = parts * 3 + 1) {
            memset(runs, 0, sizeof runs);
            for (int k = 0; k < ROUNDS; k++)
                if (k % 2 == 0 || !fxi_cpu_parallel_if_awake(parts, count_part, runs))
                    fxi_cpu_parallel(parts, count_part, runs);
            assert_int_equal(wrong_counts(runs, parts, ROUNDS), 0);
            assert_int_equal(wrong_counts(runs + parts, MOST - parts, 0), 0);
        }
    }
}

static void more_parts_than_a_ticket_holds(void **state)
{
    (void)state;
    const int64_t parts = ((int64_t)2 << 20) + 3;
    int *runs = calloc((size_t)parts, sizeof *runs);
    use_threads(3);
    fxi_cpu_parallel(parts, count_part, runs);
    assert_int_equal(wrong_counts(runs, parts, 1), 0);
    free(runs);
}

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until `want` parts have begun, which takes that many threads. */
typedef struct meeting {
    int begun, want, met;
} meeting;

static void meet(void *user, int64_t part)
{
    meeting *m = user;
    (void)part;
    __atomic_add_fetch(&m->begun, 1, __ATOMIC_SEQ_CST);
    for (int64_t end = milliseconds() + 20000; milliseconds() < end; sched_yield())
        if (__atomic_load_n(&m->begun, __ATOMIC_SEQ_CST) >= m->want) {
            __atomic_add_fetch(&m->met, 1, __ATOMIC_SEQ_CST);
            return;
        }
}

static void as_many_threads_take_part_as_were_asked_for(void **state)
{
    (void)state;
    for (int n = 5; n > 0; n--) {
        meeting m = {.want = n};
        use_threads((size_t)n);
        fxi_cpu_parallel(n, meet, &m);
        assert_int_equal(m.met, n);
    }
}

/* ---- threads that sleep ---------------------------------------------------------------------- */

typedef struct helped {
    pthread_t caller;
    int runs[4], strangers;
} helped;

static void note_thread(void *user, int64_t part)
{
    helped *h = user;
    __atomic_add_fetch(&h->runs[part], 1, __ATOMIC_RELAXED);
    if (!pthread_equal(h->caller, pthread_self()))
        __atomic_add_fetch(&h->strangers, 1, __ATOMIC_RELAXED);
    for (int64_t end = fxi_clock_nanoseconds() + 2000; fxi_clock_nanoseconds() < end;)
        ;
}

/* Does a job use other threads? Before it, a large job wakes them, or they get `pause` microseconds
 * to fall asleep. `others` counts the parts that they ran. */
static bool shared(int64_t pause, int *others)
{
    helped h = {.caller = pthread_self()};
    meeting m = {.want = 2};
    if (pause > 0)
        usleep((useconds_t)pause);
    else
        fxi_cpu_parallel(2, meet, &m);
    const bool ran = fxi_cpu_parallel_if_awake(4, note_thread, &h);
    assert_int_equal(wrong_counts(h.runs, 4, ran ? 1 : 0), 0);
    *others += h.strangers;
    return ran;
}

/* Chance decides when the system runs a thread, so each is tried until it is seen. */
static void small_jobs_use_threads_that_are_awake(void **state)
{
    (void)state;
    use_threads(2);
    int others = 0, alone = 0;
    for (int64_t end = milliseconds() + 20000; others == 0 && milliseconds() < end;)
        shared(0, &others);
    assert_true(others > 0);
    for (int64_t end = milliseconds() + 20000; alone < 3 && milliseconds() < end;)
        alone += !shared(2000, &others);
    assert_int_equal(alone, 3);
}

/* ---- nested and concurrent calls ------------------------------------------------------------- */

typedef struct nest {
    int runs[8][8];
    pthread_t threads[8];
    int strangers;
} nest;

static void inner(void *user, int64_t part)
{
    void **both = user;
    nest *n = both[0];
    const int64_t *outer = both[1];
    if (!pthread_equal(n->threads[*outer], pthread_self()))
        __atomic_add_fetch(&n->strangers, 1, __ATOMIC_RELAXED);
    n->runs[*outer][part]++;
}

static void outer(void *user, int64_t part)
{
    nest *n = user;
    n->threads[part] = pthread_self();
    fxi_cpu_parallel(8, inner, (void *[]){n, &part});
}

static void a_call_within_a_part_runs_in_its_thread(void **state)
{
    (void)state;
    use_threads(3);
    nest n = {.strangers = 0};
    fxi_cpu_parallel(8, outer, &n);
    assert_int_equal(n.strangers, 0);
    assert_int_equal(wrong_counts(n.runs[0], 64, 1), 0);
}

typedef struct user_thread {
    int runs[40];
} user_thread;

static void *call_often(void *user)
{
    user_thread *u = user;
    for (int k = 0; k < 300; k++)
        fxi_cpu_parallel(40, count_part, u->runs);
    return NULL;
}

static void threads_of_the_program_may_call_at_once(void **state)
{
    (void)state;
    enum { USERS = 4 };
    static user_thread users[USERS];
    pthread_t threads[USERS];
    memset(users, 0, sizeof users);
    use_threads(3);
    for (int k = 0; k < USERS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, call_often, &users[k]), 0);
    for (int k = 0; k < 100; k++)
        fx_set_num_threads(1 + k % 4);
    for (int k = 0; k < USERS; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < USERS; k++)
        assert_int_equal(wrong_counts(users[k].runs, 40, 300), 0);
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* One thread has small scratch on its stack, and allocates large scratch. */
enum { SMALL = 5000, LARGE = 20000 };
static int wrong_after_use(void *scratch, int64_t part, int bytes)
{
    char *s = scratch;
    int bad = (uintptr_t)scratch % 64 != 0;
    memset(s, (int)part, (size_t)bytes);
    sched_yield();
    for (int k = 0; k < bytes; k++)
        bad += s[k] != (char)part;
    return bad;
}

static void use_small(void *user, int64_t part, void *scratch)
{
    __atomic_add_fetch((int *)user, wrong_after_use(scratch, part, SMALL), __ATOMIC_RELAXED);
}

static void use_large(void *user, int64_t part, void *scratch)
{
    __atomic_add_fetch((int *)user, wrong_after_use(scratch, part, LARGE), __ATOMIC_RELAXED);
}

static void threads_have_scratch_of_their_own(void **state)
{
    (void)state;
    FOR_THREADS(n)
    {
        int wrong = 0;
        use_threads(n);
        for (int k = 0; k < 20; k++) {
            assert_int_equal(fxi_cpu_parallel_scratch(40, SMALL, use_small, &wrong), FX_OK);
            assert_int_equal(fxi_cpu_parallel_scratch(40, LARGE, use_large, &wrong), FX_OK);
        }
        assert_int_equal(wrong, 0);
        const int64_t live = fxi_live_allocations();
        fxi_fault_set(0);
        assert_int_equal(fxi_cpu_parallel_scratch(40, LARGE, use_large, &wrong), FX_STATUS_MEMORY);
        fxi_fault_set(-1);
        assert_int_equal(fxi_cpu_parallel_scratch(40, LARGE, use_large, &wrong), FX_OK);
        assert_int_equal(wrong, 0);
        assert_int_equal(fxi_live_allocations(), live);
    }
}

/* ---- the system ------------------------------------------------------------------------------ */

static void workers_take_no_signals(void *user, int64_t part)
{
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    ((int *)user)[part] = sigismember(&mask, SIGINT);
    meet((meeting *)((int *)user + 2), part);
}

static void signals_are_for_the_programs_threads(void **state)
{
    (void)state;
    struct {
        int blocked[2];
        meeting m;
    } two = {.m = {.want = 2}};
    use_threads(2);
    fxi_cpu_parallel(2, workers_take_no_signals, &two);
    assert_int_equal(two.m.met, 2);
    assert_int_equal(two.blocked[0] + two.blocked[1], 1);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGINT), 0);
}

/* The thread sanitizer refuses to start threads in the child of a program with threads. */
#if !defined(__SANITIZE_THREAD__)
static void a_child_starts_threads_of_its_own(void **state)
{
    (void)state;
    use_threads(3);
    meeting before = {.want = 3}, after = {.want = 3};
    fxi_cpu_parallel(3, meet, &before);
    assert_int_equal(before.met, 3);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int runs[40] = {0};
        fxi_cpu_parallel(40, count_part, runs);
        fxi_cpu_parallel(3, meet, &after);
        _exit(wrong_counts(runs, 40, 1) == 0 && after.met == 3 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fxi_cpu_parallel(3, meet, &after);
    assert_int_equal(after.met, 3);
}

/* Another thread is in the middle of a job when the process forks: its parts are not the child's.
 */
typedef struct stay {
    int begun, run;
    bool go;
} stay;

static void stay_until_told(void *user, int64_t part)
{
    stay *s = user;
    (void)part;
    __atomic_add_fetch(&s->begun, 1, __ATOMIC_SEQ_CST);
    for (int64_t end = milliseconds() + 20000; milliseconds() < end; sched_yield())
        if (__atomic_load_n(&s->go, __ATOMIC_SEQ_CST))
            break;
    __atomic_add_fetch(&s->run, 1, __ATOMIC_SEQ_CST);
}

static void *have_a_long_job(void *user)
{
    fxi_cpu_parallel(30, stay_until_told, user);
    return NULL;
}

static void a_child_has_nothing_of_a_job_in_progress(void **state)
{
    (void)state;
    stay s = {0};
    pthread_t thread;
    use_threads(3);
    assert_int_equal(pthread_create(&thread, NULL, have_a_long_job, &s), 0);
    for (int64_t end = milliseconds() + 20000; milliseconds() < end; sched_yield())
        if (__atomic_load_n(&s.begun, __ATOMIC_SEQ_CST) == 3)
            break;
    assert_int_equal(s.begun, 3);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int wrong = 0;
        s.go = true;
        fx_set_num_threads(40); /* the first threads run before the last ones have started */
        for (int round = 0; round < 20; round++) {
            int runs[40] = {0};
            meeting m = {.want = 3};
            fxi_cpu_parallel(3, meet, &m);
            fxi_cpu_parallel(40, count_part, runs);
            wrong += m.met != 3 || wrong_counts(runs, 40, 1) != 0;
        }
        _exit(wrong == 0 && s.begun == 3 && s.run == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    __atomic_store_n(&s.go, true, __ATOMIC_SEQ_CST);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(s.run, 30);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

/* ---- how many -------------------------------------------------------------------------------- */

static void small_work_is_one_part(void **state)
{
    (void)state;
    assert_int_equal(fxi_cpu_parts(32, fxi_cpu_cost(3 * 32 * 32 * 4, 2.0 * 32 * 32 * 32)), 1);
    assert_int_equal(fxi_cpu_parts(1, 1e9), 1);
    assert_int_equal(fxi_cpu_parts(0, 1e9), 1);
    assert_true(fxi_cpu_parts(1000, 1e9) > 2);
    assert_int_equal(fxi_cpu_parts(2, 1e9), 2);
    assert_int_equal(fxi_cpu_parts(8, 0.9 * FXI_PARTS_FROM), 1);
    assert_int_equal(fxi_cpu_parts_if_awake(1000, 0.5 * FXI_PARTS_FROM), 4);
    assert_int_equal(fxi_cpu_parts_if_awake(2, 0.5 * FXI_PARTS_FROM), 2);
    assert_int_equal(fxi_cpu_parts_if_awake(8, 0.1 * FXI_PARTS_FROM), 1);
    int64_t at = 0;
    for (int64_t part = 0; part < 7; part++) {
        int64_t from, to;
        fxi_cpu_range(23, 7, part, &from, &to);
        assert_int_equal(from, at);
        assert_true(to - from == 3 || to - from == 4);
        at = to;
    }
    assert_int_equal(at, 23);
}

/* A thread gets neighbouring parts (cpu_parallel.c), so these should have its share of the items
 * together: with the longer parts first, a half of 4 parts of 14 items had 8. */
static void neighbouring_parts_have_their_share_of_the_items(void **state)
{
    (void)state;
    int wrong = 0;
    for (int64_t items = 1; items < 60; items++)
        for (int64_t parts = 1; parts <= 16; parts++)
            for (int64_t first = 0; first < parts; first++)
                for (int64_t last = first; last < parts; last++) {
                    int64_t from, to, unused;
                    fxi_cpu_range(items, parts, first, &from, &unused);
                    fxi_cpu_range(items, parts, last, &unused, &to);
                    const double share = (double)(items * (last + 1 - first)) / (double)parts;
                    wrong += (double)(to - from) <= share - 1 || (double)(to - from) >= share + 1;
                }
    assert_int_equal(wrong, 0);
}

static void the_number_of_threads_is_the_programs_choice(void **state)
{
    (void)state;
    use_threads(7);
    assert_int_equal(fx_set_num_threads(-1), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_int_equal(fx_num_threads(), 7);
    assert_int_equal(fx_set_num_threads(100000), FX_OK);
    assert_int_equal(fx_num_threads(), FXI_THREADS_MOST);
    assert_int_equal(setenv("FX_NUM_THREADS", "3", 1), 0);
    assert_int_equal(fx_set_num_threads(0), FX_OK);
    assert_int_equal(fx_num_threads(), 3);
    unsetenv("FX_NUM_THREADS");
    assert_int_equal(fx_set_num_threads(0), FX_OK);
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_in_range(fx_num_threads(), 1, CPU_COUNT(&set));
}

static char warned[300];

static void listen(int level, const char *text, void *user)
{
    (void)user;
    assert_int_equal(level, 1);
    snprintf(warned, sizeof warned, "%s", text);
}

/* A text that is not a number of threads is named in a warning, and the default is used; an empty
 * text, as a batch system may set, counts as not set. */
static void a_wrong_number_is_reported(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "lots", "3x", "2.5", "0", "-4", "0x10", "99999999999999999999"};
    char want[300];
    unsetenv("FX_NUM_THREADS");
    fx_message_set_hook(listen, NULL);
    assert_int_equal(fx_set_num_threads(0), FX_OK);
    const int usual = fx_num_threads();
    for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        const char *text = i ? wrong[i - 1] : "";
        *warned = *want = 0;
        if (i)
            snprintf(
                want, sizeof want,
                "FX_NUM_THREADS: \"%s\" is not a whole number from 1 to 2147483647; %d is used.",
                text, usual);
        assert_int_equal(setenv("FX_NUM_THREADS", text, 1), 0);
        assert_int_equal(fx_set_num_threads(0), FX_OK);
        assert_int_equal(fx_num_threads(), usual);
        assert_string_equal(warned, want);
    }
    unsetenv("FX_NUM_THREADS");
    fx_message_set_hook(NULL, NULL);
}

static void a_cgroup_grants_whole_cores(void **state)
{
    (void)state;
    assert_int_equal(fxi_cgroup_cores("max 100000"), 0);
    assert_int_equal(fxi_cgroup_cores("200000 100000"), 2);
    assert_int_equal(fxi_cgroup_cores("150000 100000"), 2);
    assert_int_equal(fxi_cgroup_cores("1000 100000"), 1);
    assert_int_equal(fxi_cgroup_cores("-1 100000"), 0);
    assert_int_equal(fxi_cgroup_cores(""), 0);
}

/* ---- products -------------------------------------------------------------------------------- */

static bool goes_on; /* atomic */

static void *changes_the_number(void *unused)
{
    (void)unused;
    for (int k = 0; __atomic_load_n(&goes_on, __ATOMIC_RELAXED); k++) {
        fx_set_num_threads(k % 2 ? 2 : 16);
        nanosleep(&(const struct timespec){.tv_nsec = 50000}, NULL);
    }
    return NULL;
}

/* A product has the same bits while another thread changes the number of threads. Rows of B are
 * pages apart, so several panels are packed together, how many depends on the threads. */
static void a_product_while_the_number_of_threads_changes(void **state)
{
    (void)state;
    enum { M = 200, K = 150, N = 2048, ROUNDS = 60 };
    static float a[M * K], b[N * K], want[M * N], got[M * N];
    pthread_t thread;
    FX_SCOPE;
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i * 7 % 11) - 5;
    for (int i = 0; i < N * K; i++)
        b[i] = (float)(i * 5 % 13) - 6;
    fx_array *A = fx_from(FX_DTYPE_F32, a, M, K), *B = fx_from(FX_DTYPE_F32, b, N, K);
    use_threads(2);
    assert_int_equal(fx_read_into(fx_matmul(A, fx_transpose(B)), want, sizeof want), FX_OK);
    __atomic_store_n(&goes_on, true, __ATOMIC_RELAXED);
    assert_int_equal(pthread_create(&thread, NULL, changes_the_number, NULL), 0);
    int wrong = 0;
    for (int k = 0; k < ROUNDS; k++) {
        FX_SCOPE;
        fx_read_into(fx_matmul(A, fx_transpose(B)), got, sizeof got);
        wrong += memcmp(got, want, sizeof got) != 0;
    }
    __atomic_store_n(&goes_on, false, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_runs_once),
        cmocka_unit_test(more_parts_than_a_ticket_holds),
        cmocka_unit_test(as_many_threads_take_part_as_were_asked_for),
        cmocka_unit_test(small_jobs_use_threads_that_are_awake),
        cmocka_unit_test(a_call_within_a_part_runs_in_its_thread),
        cmocka_unit_test(threads_of_the_program_may_call_at_once),
        cmocka_unit_test(threads_have_scratch_of_their_own),
        cmocka_unit_test(signals_are_for_the_programs_threads),
#if !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(a_child_starts_threads_of_its_own),
        cmocka_unit_test(a_child_has_nothing_of_a_job_in_progress),
#endif
        cmocka_unit_test(small_work_is_one_part),
        cmocka_unit_test(neighbouring_parts_have_their_share_of_the_items),
        cmocka_unit_test(the_number_of_threads_is_the_programs_choice),
        cmocka_unit_test(a_wrong_number_is_reported),
        cmocka_unit_test(a_cgroup_grants_whole_cores),
        cmocka_unit_test(a_product_while_the_number_of_threads_changes),
    };
    return cmocka_run_group_tests(tests, NULL, back_to_default);
}
