/* test_nccl.c: operations on arrays of GPUs by NCCL and RCCL, and the messages of their failures.
 * They run on simulated drivers and libraries (tests/sim/sim_nccl.c). ctest: simulated timeout=300
 *
 * The other member of the group is missing: it has the same arrays. Real groups of processes are
 * tested by tests/dist. A library is opened once in a process, so every row runs in a child.
 */
#include "dist_group.h"
#include "gate.h"
#include "gpu_device.h"
#include "simulated_rows.h"

#include <cflux.h>
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define SIM CFLUX_BUILD_DIR "/tests/sim"

/* ---- what a child does ----------------------------------------------------------------------- */

static int host_calls; /* calls of the host's transport that moved Float32 */
static int agreements; /* atomic: operations on which the members have agreed */

/* The host's transport, as MPI would work for two members with equal operands. */
static fx_status mirror(const fxi_transport_group *g, const fxi_transport_call *c, char *why,
                        size_t size)
{
    const size_t bytes = (size_t)c->count * fx_dtype_size((fx_dtype)c->dtype);
    const bool adds =
        c->kind == FX_COLLECTIVE_ALL_REDUCE && c->dtype == FX_DTYPE_F32 && c->fold == FX_REDUCE_SUM;
    (void)g;
    memcpy(c->out, c->in, bytes);
    if (c->kind == FXI_COLLECTIVE_GATHER)
        memcpy((char *)c->out + bytes, c->in, bytes);
    if (c->kind == FXI_COLLECTIVE_EXCHANGE)
        memcpy((char *)c->out + bytes / 2, c->in, bytes / 2);
    for (int64_t i = 0; adds && i < c->count; i++)
        ((float *)c->out)[i] *= 2;
    host_calls += c->dtype == FX_DTYPE_F32;
    if (c->dtype == FX_DTYPE_F32 && getenv("HOST_FAILS") &&
        host_calls == atoi(getenv("HOST_FAILS"))) {
        snprintf(why, size, "as the test says");
        return FX_STATUS_IO;
    }
    if (c->kind == FX_COLLECTIVE_ALL_REDUCE && c->dtype == FX_DTYPE_I64 && c->count == 3) {
        if (getenv("SLOW_AGREEMENT"))
            nanosleep(&(const struct timespec){.tv_nsec = 100000000}, NULL);
        __atomic_add_fetch(&agreements, 1, __ATOMIC_SEQ_CST);
    }
    return FX_OK;
}

static fx_dist group;

static void show(fx_array *y)
{
    float got[8];
    if (fx_read_as(y, FX_DTYPE_F32, got, fx_length(y)) == FX_OK) {
        for (int64_t i = 0; i < fx_length(y); i++)
            printf("%g ", (double)got[i]);
        printf("; ");
    }
    const fx_error e = fx_error_take();
    if (e.status != FX_OK)
        printf("%s: %s; ", fx_status_name(e.status), e.message);
}

static fx_array *on(int k, fx_dtype type)
{
    const char *backend = getenv("OF_BACKEND");
    backend = backend ? backend : "CUDA";
    fx_use(backend);
    return fx_to(fx_device_get(backend, k), fx_cast(fx_vector(1, 2, 3), type));
}

static void reduce(fx_dtype type, fx_reduce fold)
{
    show(fx_dist_allreduce(&group, on(0, type), fold));
}

/* A parameter after an update with a gradient of 1 + 2⁻¹⁰, which BFloat16 rounds to 1, and the
 * guard, which is never rounded. With observations: also the number of arrays that were moved. */
static void update(double observations)
{
    fx_array *w = fx_mul(0, on(0, FX_DTYPE_F32)), *g = fx_add(1 + ldexp(1, -10), w);
    fx_dense_layer *one = fx_dense(0, 0, .weight_array = fx_reshape(w, 1, 3), .bias = false);
    void *opt = fx_setup(fx_dist_optimiser(&group, fx_descent(1)), one);
    fx_array *loss = fx_sum(fx_mul(one->weight, fx_reshape(g, 1, 3)));
    const uint64_t before = fx_stats().transfers;
    fx_update(opt, one, fx_gradient(loss, one), .guard = loss, .observations = observations);
    show(one->weight);
    if (observations >= 0)
        printf("%d moved; ", (int)(fx_stats().transfers - before));
}

/* ---- beside the backward pass ---------------------------------------------------------------- */

/* Gates are between the layers of a model (gate.h); each layer has one full bucket. In the
 * backward pass, gate k waits until the members have agreed on k more operations. So bucket k − 1
 * has been exchanged by then, although no step after the gate has run. Without overlap gate 1 would
 * wait for ever. */
enum { WIDTH = 512, LAYERS = 3 };

static int gates, agreed_before;
static bool gates_wait;

static fx_status waits(const fx_custom_op *op, int n, const fx_custom_operand *in,
                       const fx_custom_operand *out)
{
    (void)op, (void)n;
    const int want = agreed_before + ++gates;
    for (int ms = 0; gates_wait && __atomic_load_n(&agreements, __ATOMIC_SEQ_CST) < want; ms++) {
        if (ms == 20000)
            return FX_STATUS_STATE;
        nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (getenv("EXITS"))
        exit(0);
    return gate_copies(in, out);
}

GATE(gate, waits);

static int begun;

static void *counts_begun(const fx_communicator *self, const fx_device_queue *queue,
                          const fx_step *step, const void *in, void *out)
{
    void *ticket = gates_wait ? fxi_dist_operation_begin_on(self, queue, step, in, out) : NULL;
    begun += ticket != NULL;
    return ticket;
}

/* The same on copies in host memory. */
static void *counts_begun_on_copies(const fx_communicator *self, const fx_step *step,
                                    const void *in, void *out)
{
    void *ticket = gates_wait ? fxi_dist_operation_begin(self, step, in, out) : NULL;
    begun += ticket != NULL;
    return ticket;
}

/* Lets calls of the driver fail as LATE_FAIL says, from now on. */
static void fail_late(void)
{
    void (*set)(const char *) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (getenv("LATE_FAIL") && driver)
        *(void **)&set = dlsym(driver, "sim_set_script");
    if (set)
        set(getenv("LATE_FAIL"));
}

/* Two updates. The parameters, which the caller frees; NULL after a failure. */
static float *parameters(bool overlaps, int64_t *out_n)
{
    FX_SCOPE;
    fx_seed(3);
    void *all[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        all[i] = fx_dense(WIDTH, WIDTH);
    fx_array *x = on(0, FX_DTYPE_F32);
    void *model = fx_to(fx_array_device(x), fxi_chain(LAYERS, all));
    void *opt = fx_setup(fx_dist_optimiser(&group, fx_descent(0.5)), model);
    x = fx_to(fx_array_device(x), fx_add(fx_ones(WIDTH, 2), 0.5));
    fx_eval(fx_tuple(model, x));
    fail_late();
    gates_wait = overlaps;
    group.communicator.begin_on = counts_begun;
    group.communicator.begin = counts_begun_on_copies;
    for (int k = 0; k < 2; k++) {
        FX_SCOPE;
        gates = 0;
        agreed_before = __atomic_load_n(&agreements, __ATOMIC_SEQ_CST);
        fx_array *y = x;
        for (int i = 0; i < LAYERS; i++)
            y = fx_call(fx_child(model, i), i > 0 ? gate_pass(&gate, y) : y);
        if (fx_update(opt, model, fx_gradient(fx_mean(fx_square(y)), model)) != FX_OK)
            return NULL;
    }
    fx_array *p = fx_destructure(model);
    *out_n = fx_length(p);
    float *got = malloc((size_t)*out_n * sizeof *got);
    if (!got || fx_read_as(p, FX_DTYPE_F32, got, *out_n) != FX_OK) {
        free(got);
        return NULL;
    }
    return got;
}

static void overlap(void)
{
    int64_t n = 0, m = 0;
    float *beside = parameters(true, &n);
    const fx_error e = fx_error_take();
    if (e.status != FX_OK)
        printf("%s: %s; ", fx_status_name(e.status), e.message);
    float *after = beside ? parameters(false, &m) : NULL;
    const bool same = after && n == m && n == LAYERS * WIDTH * (WIDTH + 1) &&
                      memcmp(beside, after, (size_t)n * sizeof *beside) == 0;
    printf("%d begun, %s bits; ", begun, same ? "the same" : "other");
    free(beside);
    free(after);
}

/* A step that reads a mean begins a part of the plan with several launches: the part may run only
 * when the mean has arrived. Nothing else waits for the exchange. */
static void read_in_part(void)
{
    gates_wait = true; /* so that the counting functions begin */
    group.communicator.begin_on = counts_begun;
    group.communicator.begin = counts_begun_on_copies;
    fx_device *gpu = fx_array_device(on(0, FX_DTYPE_F32));
    fx_array *x = fx_to(gpu, fx_mul(fx_ones(300, 300), 0.01));
    for (int k = 0; k < 3; k++) { /* runs after the first one are recorded, then replayed */
        FX_SCOPE;
        fx_array *sum = fx_dist_allreduce(&group, fx_matmul(x, x), FX_REDUCE_SUM);
        fx_array *beside = fx_matmul(fx_matmul(x, x), x);
        fx_array *y = fx_matmul(fx_add(sum, beside), x);
        const double got = fx_item(fx_slice(fx_slice(fx_matmul(y, x), 0, 0, 1), 1, 0, 1));
        /* 0.03 in each sum is 0.06; 0.09 beside it; then two products */
        const double want = (2 * 300e-4 + 300e-4 * 300e-2) * 300e-2 * 300e-2;
        printf("%s; ", fabs(got - want) < 1e-5 * want ? "right" : "wrong");
    }
    printf("%d begun; ", begun);
}

/* ---- acts ------------------------------------------------------------------------------------ */

static void act(const char *what)
{
    const struct {
        const char *name;
        fx_dtype type;
        fx_reduce fold;
    } rows[] = {{"mean", FX_DTYPE_F32, FX_REDUCE_MEAN},      {"sum", FX_DTYPE_F32, FX_REDUCE_SUM},
                {"product", FX_DTYPE_F32, FX_REDUCE_PROD},   {"wide", FX_DTYPE_F64, FX_REDUCE_SUM},
                {"most", FX_DTYPE_I32, FX_REDUCE_MAX},       {"whole", FX_DTYPE_I64, FX_REDUCE_SUM},
                {"float most", FX_DTYPE_F32, FX_REDUCE_MAX}, {"half", FX_DTYPE_F16, FX_REDUCE_SUM}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (strcmp(what, rows[k].name) == 0)
            reduce(rows[k].type, rows[k].fold);
    if (strcmp(what, "send") == 0)
        show(fx_dist_bcast(&group, on(0, FX_DTYPE_F32), 1));
    if (strcmp(what, "gradient") == 0)
        update(-1);
    if (strcmp(what, "weighted") == 0)
        update(5);
    if (strcmp(what, "nothing") == 0)
        update(0);
    if (strcmp(what, "overlap") == 0)
        overlap();
    if (strcmp(what, "read in part") == 0)
        read_in_part();
    for (int k = 0; k < 2 && strcmp(what, "twice") == 0; k++)
        reduce(FX_DTYPE_F32, FX_REDUCE_SUM);
    for (int k = 0; k < 2 && strcmp(what, "two devices") == 0; k++)
        show(fx_dist_allreduce(&group, on(k, FX_DTYPE_F32), FX_REDUCE_SUM));
}

/* The mean over three devices of one process: of 1, 2, 3 times 1, 2, 3. */
static void average(fx_dtype type)
{
    void *g[3];
    for (int k = 0; k < 3; k++)
        g[k] = fx_mul(on(k, type), k + 1);
    fx_average(3, g);
    const fx_error e = fx_error_take();
    for (int k = 0; k < 3 && e.status == FX_OK; k++)
        show(g[k]);
    if (e.status != FX_OK)
        printf("%s: %s; ", fx_status_name(e.status), e.message);
    const fxi_gpu_counters *counts =
        fx_backend_proc(fx_array_device(g[0])->backend->head.name, "counters");
    printf("%lld copies; ", (long long)counts->direct);
}

static int averages(const char *what)
{
    FX_SCOPE;
    const fx_dtype type = strstr(what, "half")   ? FX_DTYPE_F16
                          : strstr(what, "wide") ? FX_DTYPE_F64
                                                 : FX_DTYPE_F32;
    for (int k = 0; k < 2; k++)
        average(type);
    return 0;
}

static int child(const char *what)
{
    FX_SCOPE;
    if (strstr(what, "average"))
        return averages(what);
    static const fxi_transport transport = {.run = mirror};
    const fxi_transport_group two = {.rank = 0,
                                     .size = 2,
                                     .local_rank = 0,
                                     .local_size = 2,
                                     .library = "a mirror",
                                     .any_thread = true};
    char why[FXI_DIST_WHY] = "";
    fxi_dist_begin(&group, &transport, &two, 0.3);
    group.narrow = getenv("WIRE") != NULL;
    const fx_status status = fxi_dist_open_devices(&group, why, sizeof why);
    if (status != FX_OK)
        printf("%s: %s; ", fx_status_name(status), why);
    else
        act(what);
    printf("%d by the host\n", host_calls);
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

#define FAIL      "SIM_FAIL="
#define ONLY_NCCL "FX_RCCL_LIBRARY=/nowhere.so "

static const simulated_row rows[] = {
    /* steps that the library computes, and steps that it leaves to the host */
    {"", "mean", {"1 2 3 ; 0 by the host"}},
    {"", "sum", {"2 4 6 ; 0 by the host"}},
    {"", "product", {"1 4 9 ; 0 by the host"}},
    {"", "wide", {"2 4 6 ; 0 by"}},
    {"", "most", {"1 2 3 ; 0 by"}},
    {"", "whole", {"2 4 6 ; 0 by"}},
    {"", "send", {"1 2 3 ; 0 by"}},
    {"", "float most", {"1 2 3 ; 1 by"}},
    {"", "half", {"2 4 6 ; 1 by"}},
    {"", "twice", {"2 4 6 ; 2 4 6 ; 0 by"}},
    {"OF_BACKEND=AMDGPU", "mean", {"1 2 3 ; 0 by the host"}},
    {"SIM_DEFER=1", "twice", {"2 4 6 ; 2 4 6 ; 0 by"}},
    {"SIM_NCCL_SLOW=5", "twice", {"2 4 6 ; 2 4 6 ; 0 by"}},
    /* gradients as BFloat16: only those that the host moves, and not their guard */
    {"", "gradient", {"-1.00098 -1.00098 -1.00098 ; 0 by the host"}},
    {"WIRE=16", "gradient", {"-1.00098 -1.00098 -1.00098 ; 0 by the host"}},
    {"", "weighted", {"-1.00098 -1.00098 -1.00098 ; 0 moved; 0 by the host"}},
    {"", "nothing", {"0 0 0 ; 0 moved; 0 by the host"}},
    {"WIRE=16 FX_NCCL_LIBRARY=/nowhere.so", "gradient", {"-1 -1 -1 ; 1 by the host"}},
    {"WIRE=16", "sum", {"2 4 6 ; 0 by the host"}},
    /* only one of the two libraries opens */
    {"FX_RCCL_LIBRARY=/nowhere.so", "sum", {"2 4 6 ; 0 by"}},
    {"FX_NCCL_LIBRARY=/nowhere.so", "sum", {"2 4 6 ; 1 by"}},
    /* no library, no plugin */
    {"FX_RCCL_LIBRARY=/none.so FX_NCCL_LIBRARY=/nowhere.so",
     "sum",
     {"rank 0 cannot continue", "FX_NCCL_LIBRARY names, cannot be opened",
      "FX_RCCL_LIBRARY names"}},
    {"FX_PLUGIN_PATH=/nowhere", "sum", {"there is no libcflux-nccl.so", "libcflux-rccl.so"}},
    /* an old, a damaged, a failing library */
    {ONLY_NCCL "FX_NCCL_LIBRARY=" SIM "/libsim-old.so", "sum", {"has no function ncclGetVersion"}},
    {ONLY_NCCL "SIM_NCCL_VERSION=21304", "sum", {"is version 2.13: NCCL 2.14 is needed"}},
    {ONLY_NCCL "SIM_NCCL_VERSION=2708", "sum", {"is version 2.7: NCCL 2.14 is needed"}},
    {ONLY_NCCL FAIL "ncclGetVersion@1=3", "sum", {"ncclGetVersion failed: internal error"}},
    /* beginning a connection: a message, and the next operation tries again */
    {FAIL "ncclGetUniqueId@1=2",
     "twice",
     {"ncclGetUniqueId failed: unhandled system error: as the script says", "; 2 4 6 ; 0 by"}},
    {FAIL "ncclCommInitRankConfig@1=1",
     "twice",
     {"rank 0 cannot continue: ncclCommInitRankConfig failed: unhandled cuda error", "; 2 4 6 ; "}},
    {FAIL "ncclCommInitRankConfig@1=5", "twice", {"failed: invalid usage", "; 2 4 6 ; 0 by"}},
    {FAIL "ncclCommInitRankConfig@0=4", "twice", {"failed: invalid argument"}},
    {FAIL "async@1=2 SIM_NCCL_SAYS=1",
     "twice",
     {"NCCL failed: unhandled system error", "aborted; ", "; 2 4 6 ; 0 by"}},
    {FAIL "async@1=6", "twice", {"NCCL failed: remote process exited", "; 2 4 6 ; 0 by"}},
    {FAIL "ncclCommGetAsyncError@1=4", "twice", {"ncclCommGetAsyncError failed: invalid argument"}},
    {"SIM_NCCL_SLOW=1000000 SIM_NCCL_SAYS=1",
     "sum",
     {"aborted; ", "all ranks called the operation, but NCCL did not complete it within 0.3 s"}},
    /* an operation: the group is over */
    {FAIL "ncclAllReduce@1=1",
     "twice",
     {"ncclAllReduce failed: unhandled cuda error", "an earlier operation failed: ncclAllReduce"}},
    {FAIL "ncclAllReduce@1=2", "twice", {"ncclAllReduce failed: unhandled system error"}},
    {FAIL "ncclAllReduce@2=5", "twice", {"2 4 6 ; ", "ncclAllReduce failed: invalid usage"}},
    {FAIL "ncclBroadcast@1=3", "send", {"ncclBroadcast failed: internal error"}},
    {FAIL "async@2=6 SIM_NCCL_SAYS=1",
     "twice",
     {"aborted; ", "all_reduce (sum) of 3 Float32 in a GPU's memory, operation",
      "an earlier operation failed: NCCL failed: remote process"}},
    {FAIL "async@2=1,ncclCommAbort@1=1", "twice", {"NCCL failed: unhandled cuda error"}},
    {FAIL "ncclCommGetAsyncError@2=3", "twice", {"ncclCommGetAsyncError failed: internal error"}},
    {"SIM_NCCL_HANGS=1000000 SIM_NCCL_SAYS=1",
     "twice",
     {"aborted; ", "a GPU, a link or a process has stopped", "an earlier operation failed"}},
    {FAIL "async@2=99", "sum", {"NCCL failed: unknown result code"}},
    /* the device itself */
    {FAIL "cuStreamQuery@1=719!",
     "sum",
     {"rank 0 cannot continue: CUDA:0 (", " failed: cuStreamQuery returned CUDA_ERROR_LAUNCH"}},
    {FAIL "cuStreamQuery@2=719!", "sum", {" failed: cuStreamQuery returned CUDA_ERROR_LAUNCH"}},
    {FAIL "cuStreamQuery@1=1", "sum", {"rank 0 cannot continue: CUDA:0 (", "failed with error 1"}},
/* several devices of one process: a failure to connect leads to copies, a later one is an error,
 * after which copies are used too */
#define MEANS "2 4 6 ; 2 4 6 ; 2 4 6 ; "
#define TWICE(n, m)                                                                                \
    {                                                                                              \
        MEANS #n " copies; " MEANS #m " copies; "                                                  \
    }
    {"", "average", TWICE(0, 0)},
    {"SIM_DEFER=1", "average", TWICE(0, 0)},
    {"SIM_NCCL_SLOW=5", "average", TWICE(0, 0)},
    {"", "wide average", TWICE(0, 0)},
    {"SIM_DEFER=1", "half average", TWICE(0, 0)},
    {"OF_BACKEND=AMDGPU SIM_DEVICES=3", "average", TWICE(0, 0)},
    {"FX_NCCL_LIBRARY=off", "average", TWICE(4, 8)},
    {"FX_NCCL_LIBRARY=/nowhere.so", "average", TWICE(4, 8)},
    {"FX_PLUGIN_PATH=" CFLUX_BUILD_DIR " SIM_NCCL_VERSION=21304", "average", TWICE(4, 8)},
    {FAIL "ncclGetUniqueId@1=2", "average", TWICE(4, 8)},
    {FAIL "ncclGroupStart@1=3", "average", TWICE(4, 8)},
    {FAIL "ncclCommInitRankConfig@3=1", "average", TWICE(4, 8)},
    {FAIL "ncclGroupEnd@1=1", "average", TWICE(4, 8)},
    {FAIL "async@2=1", "average", TWICE(4, 8)},
    {FAIL "ncclAllReduce@2=1",
     "average",
     {"average: NCCL: CUDA:1: ncclAllReduce failed: unhandled cuda error: as the script says; 0 "
      "copies; " MEANS "4 copies; "}},
    {FAIL "ncclGroupEnd@3=2",
     "average",
     {MEANS "0 copies; FX_STATUS_DEVICE: average: NCCL: ncclGroupEnd failed: unhandled system"}},
    {FAIL "ncclCommGetAsyncError@9=3",
     "average",
     {"average: NCCL: CUDA:2: ncclCommGetAsyncError failed: internal error"}},
/* the exchange of two of three buckets beside the backward pass, in two updates */
#define OVERLAPS "4 begun, the same bits; "
    {"", "overlap", {OVERLAPS}},
    {"OF_BACKEND=AMDGPU", "overlap", {OVERLAPS}},
    {"SIM_DEFER=1", "overlap", {OVERLAPS}},
    {"SIM_DEFER=1 SIM_SEED=2", "overlap", {OVERLAPS}},
    {"SIM_DEFER=1 SIM_SEED=3 SIM_NCCL_SLOW=5", "overlap", {OVERLAPS}},
    {"FX_EAGER=1", "overlap", {OVERLAPS}},
    {"LATE_FAIL=cuStreamWaitEvent@2=1",
     "overlap",
     {"FX_STATUS_DEVICE: collective: a mirror, rank 0 of 2: all_reduce (mean) of ",
      " in a GPU's memory, operation ", "rank 0 cannot continue: CUDA:0 (",
      "): cuStreamWaitEvent failed with error 1", "other bits"}},
    {"LATE_FAIL=cuStreamWaitEvent@2=719!",
     "overlap",
     {" failed: cuStreamWaitEvent returned CUDA_ERROR_LAUNCH", "other bits"}},
    /* a step that cannot be begun runs at once */
    {"LATE_FAIL=cuEventRecord@1=1", "overlap", {"3 begun, the same bits; "}},
    {"LATE_FAIL=cuEventCreate@1=1", "overlap", {"3 begun, the same bits; "}},
    {"LATE_FAIL=cuStreamCreate@1=1", "overlap", {"3 begun, the same bits; "}},
    /* the process waits for the exchange when it ends */
    {"EXITS=1 SIM_NCCL_HANGS=1000000 SIM_NCCL_SAYS=1", "overlap", {"aborted; "}},
    {"SLOW_AGREEMENT=1", "read in part", {"right; right; right; 3 begun"}},
    {"SLOW_AGREEMENT=1 SIM_DEFER=1", "read in part", {"right; right; right; 3 begun"}},
    {"SIM_DEFER=1 SIM_SEED=2", "read in part", {"right; right; right; 3 begun"}},
    {FAIL "ncclAllReduce@2=1 SIM_DEFER=1",
     "overlap",
     {"in a GPU's memory, operation", "ncclAllReduce failed: unhandled cuda error", "other bits"}},
    {FAIL "async@4=6 SIM_NCCL_SAYS=1",
     "overlap",
     {"aborted; ", "NCCL failed: remote process exited", "other bits"}},
    {"SIM_NCCL_HANGS=1000000 SIM_NCCL_SAYS=1",
     "overlap",
     {"aborted; ", "a GPU, a link or a process has stopped", "other bits"}},
    {FAIL "cuStreamQuery@1=719!", "overlap", {"FX_STATUS_DEVICE: ", "other bits"}},
/* the same through host memory, without NCCL */
#define COPIES "FX_NCCL_LIBRARY=/nowhere.so "
    {COPIES, "overlap", {OVERLAPS}},
    {COPIES "SIM_DEFER=1 SIM_SEED=2", "overlap", {OVERLAPS}},
    {COPIES "SIM_DEFER=1 SIM_SEED=3 SLOW_AGREEMENT=1", "overlap", {OVERLAPS}},
    {COPIES "FX_EAGER=1", "overlap", {OVERLAPS}},
    {COPIES "SLOW_AGREEMENT=1 SIM_DEFER=1", "read in part", {"right; right; right; 3 begun"}},
    {COPIES "HOST_FAILS=2", "overlap", {"as the test says", "2 begun, other bits"}},
    {COPIES "LATE_FAIL=cuMemcpyDtoHAsync_v2@1=719!",
     "overlap",
     {"read: CUDA:0 (", "arrays on it can no longer be read; 0 begun, other bits"}},
    {COPIES "LATE_FAIL=cuMemcpyHtoDAsync_v2@6=719!",
     "overlap",
     {"write: CUDA:0 (", "arrays on it can no longer be read; 2 begun, other bits"}},
    {"", "two devices", {"2 4 6 ; ", "this array is on another GPU than the first one"}},
};

static void test_rows(void **unused)
{
    (void)unused;
    simulated_rows("SIM_NCCL_ALONE=1", rows, sizeof rows / sizeof *rows);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return child(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
