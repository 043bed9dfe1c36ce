/* test_opencl_exit.c: a process that ends while OpenCL devices still have work ends well: the
 * driver's threads must not compile or compute while exit frees what they use.
 * ctest: once timeout=600 native
 *
 * The program starts itself once for every way to end, twice at the same time so that the driver's
 * threads are late, each time with an empty kernel cache of PoCL, so that these threads have
 * kernels to compile. ROUNDS in the environment asks for more rounds (the default takes seconds).
 */
#include <cflux.h>

#include "temp_file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 1, SIDE_BY_SIDE = 2, SECONDS_MOST = 200 };

/* ---- ways to end ----------------------------------------------------------------------------- */

/* Queues products and maps on a device, and waits for nothing. */
static fx_status try_work(int id)
{
    fx_use("OpenCL");
    fx_device *device = fx_device_get("OpenCL", id);
    fx_array *x = fx_to(device, fx_rand(300, 300));
    fx_eval(fx_tanh(fx_matmul(x, fx_add(x, 1))));
    return fx_error_take().status;
}

static void queue_work(int id)
{
    if (try_work(id) != FX_OK)
        _exit(90);
}

static void return_from_main(void)
{
    queue_work(0);
}

static void all_devices(void)
{
    for (int k = 0; k < 3; k++)
        queue_work(k);
}

static int computed; /* atomic: results that threads have read */

/* Runs until the process ends. Its calls then fail with an error of the device. */
static void *work_on(void *unused)
{
    FX_SCOPE;
    (void)unused;
    fx_status status = try_work(0);
    fx_device *device = fx_device_get("OpenCL", 0);
    fx_array *x = fx_to(device, fx_rand(50, 50));
    for (int64_t k = 0; status == FX_OK; k++) {
        FX_SCOPE;
        fx_array *y = fx_sum(fx_mul(fx_slice(x, 0, 0, 1 + k % 49), 2));
        status = fx_eval(y);
        if (status == FX_OK && k % 3 == 0)
            fx_item(y);
        status = fx_error_take().status;
        __atomic_add_fetch(&computed, status == FX_OK, __ATOMIC_RELAXED);
    }
    if (status != FX_STATUS_DEVICE)
        _exit(91);
    for (;;)
        pause();
}

static void start_thread(void *(*function)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, NULL) != 0)
        _exit(92);
}

static void others_compute(void)
{
    start_thread(work_on);
    start_thread(work_on);
    queue_work(0);
    usleep(50000);
}

/* A thread that has called the device may end the process at any moment, also while the driver
 * compiles its first kernels. */
static void *call_and_exit(void *unused)
{
    (void)unused;
    fx_use("OpenCL");
    fx_synchronize(fx_device_get("OpenCL", 0));
    usleep(50000);
    exit(0);
}

static void exit_in_a_thread(void)
{
    start_thread(call_and_exit);
    work_on(NULL);
}

/* A thread that has not called the device ends the process after the first result (gpu_gate.h). */
static void *exit_only(void *unused)
{
    (void)unused;
    while (__atomic_load_n(&computed, __ATOMIC_RELAXED) == 0)
        usleep(1000);
    exit(0);
}

static void exit_in_another_thread(void)
{
    start_thread(exit_only);
    work_on(NULL);
}

/* A thread that has not called the device ends the process at any moment, also while the driver is
 * opened and while it compiles. gpu_gate.h explains how this can fail, so this case runs only with
 * ROUNDS. */
static void *exit_soon(void *unused)
{
    (void)unused;
    usleep((useconds_t)(getpid() * 7919L % 3000000));
    exit(0);
}

static void exit_at_any_moment(void)
{
    start_thread(exit_soon);
    work_on(NULL);
}

/* The thread that ran main ends, and later another one calls exit. */
static void *last_thread(void *unused)
{
    (void)unused;
    usleep(20000);
    queue_work(0);
    exit(0);
}

static void main_ends_first(void)
{
    start_thread(last_thread);
    pthread_exit(NULL);
}

/* A handler of the program that was registered first runs last: the device refuses, which must not
 * crash. */
static void use_it_late(void)
{
    fx_device *device = fx_device_get("OpenCL", 0);
    fx_eval(fx_add(fx_to(device, fx_rand(7, 7)), 1));
    if (!strstr(fx_error_take().message, "the process is ending"))
        _exit(93);
}

static void a_handler_computes(void)
{
    atexit(use_it_late);
    queue_work(0);
}

/* The program's own use of OpenCL, as little of it as loads the driver. */
static void load_driver(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
    int32_t (*platforms)(uint32_t, void **, uint32_t *);
    int32_t (*devices)(void *, uint64_t, uint32_t, void **, uint32_t *);
    void *(*context)(const intptr_t *, uint32_t, void **, void *, void *, int32_t *);
    void *(*queue)(void *, void *, uint64_t, int32_t *);
    void *platform = NULL, *device = NULL;
    uint32_t n = 0;
    int32_t error = -1;
    if (!library)
        _exit(94);
    *(void **)&platforms = dlsym(library, "clGetPlatformIDs");
    *(void **)&devices = dlsym(library, "clGetDeviceIDs");
    *(void **)&context = dlsym(library, "clCreateContext");
    *(void **)&queue = dlsym(library, "clCreateCommandQueue");
    if (platforms(1, &platform, &n) || devices(platform, 0xFFFFFFFF, 1, &device, &n))
        _exit(95);
    void *c = context(NULL, 1, &device, NULL, NULL, &error);
    if (!c || !queue(c, device, 0, &error))
        _exit(96);
}

static void opened_before(void)
{
    load_driver();
    queue_work(0);
}

static void opened_after(void)
{
    queue_work(0);
    load_driver();
}

/* The driver's threads do not exist in the child: it must not wait for them, and its calls are
 * refused. */
static void a_child_exits(void)
{
    int status = -1;
    queue_work(0);
    const pid_t child = fork();
    if (child == 0) {
        fx_array *y = fx_add(fx_to(fx_device_get("OpenCL", 0), fx_ones(3)), 1);
        fx_eval(y);
        exit(strstr(fx_error_take().message,
                    "OpenCL:0 cannot be used: the device was opened before this process was forked")
                 ? 0
                 : 97);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        _exit(98);
}

/* Batches that a thread of the loader moves ahead. */
static void a_loader_works_ahead(void)
{
    fx_use("OpenCL");
    fx_array *x = fx_rand(64, 4096);
    fx_loader *loader =
        fx_dataloader(x, .batchsize = 16, .device = fx_device_get("OpenCL", 0), .workers = 2);
    int seen = 0;
    for (fx_batch b = {0}; seen < 5 && fx_next(loader, &b); seen++)
        fx_eval(fx_tanh(fx_matmul(fx_transpose(b.x), b.x)));
    if (seen < 5 || fx_error_print(stderr))
        _exit(99);
    exit(0);
}

static void leave_at_once(void)
{
    queue_work(0);
    _exit(0);
}

static void leave_quickly(void)
{
    queue_work(0);
    quick_exit(0);
}

static const struct {
    const char *name;
    void (*act)(void);
} ways[] = {{"return from main", return_from_main},
            {"all devices", all_devices},
            {"others compute", others_compute},
            {"exit in a thread", exit_in_a_thread},
            {"exit in another thread", exit_in_another_thread},
            {"main ends first", main_ends_first},
            {"a handler computes", a_handler_computes},
            {"opened before", opened_before},
            {"opened after", opened_after},
            {"a child exits", a_child_exits},
            {"a loader works ahead", a_loader_works_ahead},
            {"_exit", leave_at_once},
            {"quick_exit", leave_quickly},
            {"exit at any moment", exit_at_any_moment}};
enum { WAYS = sizeof ways / sizeof *ways };

/* ---- the parent ------------------------------------------------------------------------------ */

static const char *self;

static int erase(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static pid_t start(int way, const char *folder)
{
    char number[16];
    snprintf(number, sizeof number, "%d", way);
    nftw(folder, erase, 16, FTW_DEPTH | FTW_PHYS);
    if (mkdir(folder, 0700) != 0)
        fail_msg("mkdir %s", folder);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("POCL_CACHE_DIR", folder, 1);
        alarm(SECONDS_MOST); /* a process that never ends is a failure too */
        execl(self, self, "--end", number, (char *)NULL);
        _exit(89);
    }
    return child;
}

static void every_way_to_end(void **state)
{
    (void)state;
    const char *more = getenv("ROUNDS");
    const int rounds = more && atoi(more) > 0 ? atoi(more) : ROUNDS;
    const int tried = more ? WAYS : WAYS - 1;
    char folder[SIDE_BY_SIDE][600];
    int ended = 0;
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        snprintf(folder[k], sizeof folder[k], "%s.%d", temp_text("exit", "x"), k);
    for (int round = 0; round < rounds; round++)
        for (int way = 0; way < tried; way++) {
            pid_t child[SIDE_BY_SIDE];
            for (int k = 0; k < SIDE_BY_SIDE; k++)
                child[k] = start(way, folder[k]);
            for (int k = 0; k < SIDE_BY_SIDE; k++) {
                int status = -1;
                assert_int_equal(waitpid(child[k], &status, 0), child[k]);
                if (status != 0)
                    fail_msg("%s: %s %d, in round %d", ways[way].name,
                             WIFSIGNALED(status) ? "signal" : "status",
                             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), round);
                ended++;
            }
        }
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        nftw(folder[k], erase, 16, FTW_DEPTH | FTW_PHYS);
    print_message("%d processes ended well\n", ended);
    assert_int_equal(ended, rounds * tried * SIDE_BY_SIDE);
}

int main(int argc, char **argv)
{
    self = argv[0];
    setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR, 1);
    setenv("FX_OPENCL_DEVICES", "portable", 1); /* PoCL's full name */
    setenv("POCL_DEVICES", "pthread pthread pthread", 1);
    if (argc > 2 && strcmp(argv[1], "--end") == 0) {
        ways[atoi(argv[2])].act();
        return 0;
    }
    if (fx_use("OpenCL") != FX_OK) {
        printf("skipped: OpenCL: %s\n", fx_why_not("OpenCL"));
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way_to_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
