/* gpu_host.c: see gpu_host.h.
 *
 * A kernel without barriers is a function that is called for every work-item. In a kernel with
 * barriers, each work-item of the group has a stack of its own: at a barrier the next work-item
 * continues. The order of the work-items changes after every barrier, so that a kernel which is
 * right only in one order fails. Undefined behaviour in a kernel ends the test with a trap.
 */
#include "gpu_host.h"
#include "temp_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK = 64 << 10, KERNELS = 4096 };

char gpu_host_error[512];
int64_t gpu_host_faults[FXI_GPU_FAULTS];
int gpu_host_kernels, gpu_host_launches, gpu_host_divergent;
fxi_gpu_limits gpu_host_limits = {FXI_GPU_USUAL_LIMITS,       .units = 3,  .param_bytes = 1024,
                                  .buffers = FXI_GPU_BUFFERS, .f64 = true, .atomic64 = true};
fx_device gpu_host_device = {.name = "host"};

/* ---- services -------------------------------------------------------------------------------- */
static fx_status fail(fx_status status, const char *operation, const char *text)
{
    snprintf(gpu_host_error, sizeof gpu_host_error, "%s: %s", operation, text);
    return status;
}

static void message(int level, const char *text)
{
    (void)level, (void)text;
}

const fx_host gpu_host_services = {
    .version = "test", .alloc = malloc, .free = free, .fail = fail, .message = message};

static const fxi_gpu_limits *limits(fx_device *device)
{
    (void)device;
    return &gpu_host_limits;
}

static void *faults(fx_device *device)
{
    (void)device;
    return gpu_host_faults;
}

/* ---- compiling ------------------------------------------------------------------------------- */
typedef struct kernel {
    char *source;
    void (*entry)(void *const *arguments); /* buffers, then the parameters */
    uint32_t *item, *group;
    void (**barrier)(void);
    uint32_t (**shuffle)(uint32_t v, uint32_t item);
    bool barriers;
} kernel;
static kernel kernels[KERNELS];

bool gpu_host_works(void)
{
    return system("cc --version > /dev/null 2>&1") == 0;
}

/* Appends to the source the variables that the kernel expects, and fx_entry, which calls the kernel
 * with a list of arguments. */
static void write_rest(char *text, size_t capacity, const char *name, const char *source)
{
    int buffers = 0;
    char mark[32];
    size_t n = (size_t)snprintf(text, capacity,
                                "%s\nuint32_t fx_host_item, fx_host_group[3];\n"
                                "void (*fx_host_barrier)(void);\n"
                                "uint32_t (*fx_host_shuffle)(uint32_t, uint32_t);\n"
                                "void fx_entry(void *const *a);\n"
                                "void fx_entry(void *const *a)\n{\n    %s(",
                                source, name);
    for (snprintf(mark, sizeof mark, "FX_B(0), "); strstr(source, mark);
         snprintf(mark, sizeof mark, "FX_B(%d), ", ++buffers))
        n += (size_t)snprintf(text + n, capacity - n, "a[%d], ", buffers);
    if (strstr(source, "FX_TABLE, "))
        n += (size_t)snprintf(text + n, capacity - n, "(const fx_table *)a[%d], ", buffers++);
    snprintf(text + n, capacity - n, "(const fx_params *)a[%d]);\n}\n", buffers);
}

static bool build(kernel *k, const char *name, const char *source)
{
    char object[512], command[2048];
    const size_t capacity = strlen(source) + 4096;
    char *text = malloc(capacity);
    if (!text)
        return false;
    write_rest(text, capacity, name, source);
    const char *path = temp_text("kernel.c", text);
    free(text);
    /* dlopen needs another name for each library. */
    snprintf(object, sizeof object, "%s.%d.so", path, gpu_host_kernels);
    snprintf(command, sizeof command,
             "cc -std=c11 -O0 -shared -fPIC -ffp-contract=off -Wall -Wextra -Wpedantic -Werror "
             "-Wno-unused -fsanitize=undefined -fsanitize-undefined-trap-on-error -o %s %s -lm",
             object, path);
    void *library = system(command) == 0 ? dlopen(object, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(object);
    if (!library)
        return false;
    *(void **)&k->entry = dlsym(library, "fx_entry");
    k->item = dlsym(library, "fx_host_item");
    k->group = dlsym(library, "fx_host_group");
    k->barrier = dlsym(library, "fx_host_barrier");
    k->shuffle = dlsym(library, "fx_host_shuffle");
    k->barriers = strstr(source, "FX_BARRIER;") != NULL;
    k->source = strdup(source);
    return true;
}

static fx_status compile(fx_device *device, const char *name, const char *source, void **out)
{
    (void)device;
    for (int k = 0; k < gpu_host_kernels; k++)
        if (strcmp(kernels[k].source, source) == 0) {
            *out = &kernels[k];
            return FX_OK;
        }
    if (gpu_host_kernels == KERNELS || !build(&kernels[gpu_host_kernels], name, source))
        return fail(FX_STATUS_INTERNAL, name, "the kernel does not compile");
    *out = &kernels[gpu_host_kernels++];
    return FX_OK;
}

/* ---- running --------------------------------------------------------------------------------- */
/* The group that runs: the stacks of its work-items, where each continues, and which have ended. */
static struct {
    const kernel *kernel;
    void *const *arguments;
    int current;
    ucontext_t scheduler, items[FXI_GPU_GROUP];
    bool done[FXI_GPU_GROUP];
    char *stacks;
} group;

static void item_main(void)
{
    group.kernel->entry(group.arguments);
    group.done[group.current] = true;
}

static void barrier(void)
{
    const int self = group.current;
    swapcontext(&group.items[self], &group.scheduler);
    *group.kernel->item = (uint32_t)self;
}

/* The values that the work-items of the group have offered in this round and in the previous one,
 * and the round of each. All work-items of a group shuffle together, as the kernels do. */
static uint32_t offered[2][FXI_GPU_GROUP];
static int rounds[FXI_GPU_GROUP];

static uint32_t shuffle(uint32_t v, uint32_t item)
{
    const int self = group.current, warp = gpu_host_limits.warp, now = rounds[self]++ % 2;
    offered[now][self] = v;
    barrier();
    return offered[now][self / warp * warp + (int)item % warp];
}

static void start_items(int n)
{
    for (int k = 0; k < n; k++) {
        getcontext(&group.items[k]);
        group.items[k].uc_stack.ss_sp = group.stacks + (size_t)k * STACK;
        group.items[k].uc_stack.ss_size = STACK;
        group.items[k].uc_link = &group.scheduler;
        makecontext(&group.items[k], item_main, 0);
        group.done[k] = false;
        rounds[k] = 0;
    }
}

/* The first number from `from` on that has no common divisor with n. */
static int without_divisor(int from, int n)
{
    for (;; from++) {
        int a = from, b = n;
        while (b != 0) {
            const int rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return from;
    }
}

/* Runs all work-items to their next barrier, round after round. The distance from one work-item to
 * the next and their number have no common divisor, so a round reaches all of them; each round has
 * another distance and another start. */
static void run_with_barriers(const kernel *k, int n)
{
    start_items(n);
    *k->barrier = barrier;
    *k->shuffle = shuffle;
    for (int round = 0, left = n; left > 0; round++) {
        const int before = left, distance = without_divisor(2 * round + 77, n);
        for (int j = 0; j < n; j++) {
            group.current = n == 1 ? 0 : (j * distance + 13 * round) % n;
            if (group.done[group.current])
                continue;
            *k->item = (uint32_t)group.current;
            swapcontext(&group.scheduler, &group.items[group.current]);
            left -= group.done[group.current];
        }
        gpu_host_divergent += left > 0 && left < before;
    }
}

static void run_group(const kernel *k, int n)
{
    if (k->barriers) {
        run_with_barriers(k, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        *k->item = (uint32_t)i;
        k->entry(group.arguments);
    }
}

static fx_status launch(fx_device *device, const fxi_gpu_launch *l)
{
    const kernel *k = l->kernel;
    void *arguments[FXI_GPU_BUFFERS + 2];
    (void)device;
    memcpy(arguments, l->buffers, (size_t)l->nbuffers * sizeof *arguments);
    if (l->ntable > 0)
        arguments[l->nbuffers] = (void *)(uintptr_t)&l->buffers[l->nbuffers];
    arguments[l->nbuffers + (l->ntable > 0)] = (void *)(uintptr_t)l->params;
    group.kernel = k;
    group.arguments = arguments;
    group.stacks = malloc((size_t)FXI_GPU_GROUP * STACK);
    for (uint32_t z = 0; z < l->groups[2]; z++)
        for (uint32_t y = 0; y < l->groups[1]; y++)
            for (uint32_t x = 0; x < l->groups[0]; x++) {
                k->group[0] = x, k->group[1] = y, k->group[2] = z;
                run_group(k, l->group);
            }
    free(group.stacks);
    gpu_host_launches++;
    return FX_OK;
}

const fxi_gpu_runtime gpu_host_runtime = {.dialect = FXI_GPU_HOST,
                                          .host = &gpu_host_services,
                                          .limits = limits,
                                          .kernel = compile,
                                          .launch = launch,
                                          .faults = faults};
