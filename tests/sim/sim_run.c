/* sim_run.c: computes a launch on the CPU.
 *
 * Work-items run one after another. A work-item that waits, at a barrier or for an exchange with
 * its warp, keeps its stack, and another work-item runs on another stack; so a kernel without
 * barriers needs one stack. The order of groups, and of work-items between two barriers, is random,
 * so that a kernel which is right only in one order fails.
 *
 * This file is compiled without sanitizers, which do not follow the change of stacks.
 */
#include "sim.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

enum { STACK = 64 << 10, SIM_GIVEN_MOST = 64 };

void sim_say(const char *form, ...)
{
    va_list list;
    va_start(list, form);
    fputs("simulated driver: ", stderr);
    vfprintf(stderr, form, list);
    fputs("\n", stderr);
    va_end(list);
}

unsigned sim_random(unsigned below)
{
    static uint64_t state;
    if (state == 0)
        state = (uint64_t)sim_setting("SIM_SEED", 1) * 2654435761u + 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below ? (unsigned)(state >> 33) % below : 0;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

#ifdef __x86_64__
typedef void *stack_state;
/* Stores the registers that a function must preserve, and continues where another stack stopped. */
void sim_switch(stack_state *from, stack_state to);
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\nsim_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
static void prepare_stack(stack_state *s, char *stack, void (*run)(void))
{
    uintptr_t *top = (uintptr_t *)(void *)(stack + STACK) - 2;
    *top = (uintptr_t)run;
    memset(top - 6, 0, 6 * sizeof *top);
    *s = top - 6;
}
static void change(stack_state *from, stack_state *to)
{
    sim_switch(from, *to);
}
#else
typedef ucontext_t stack_state;
static void prepare_stack(stack_state *s, char *stack, void (*run)(void))
{
    getcontext(s);
    s->uc_stack.ss_sp = stack;
    s->uc_stack.ss_size = STACK;
    s->uc_link = NULL;
    makecontext(s, run, 0);
}
static void change(stack_state *from, stack_state *to)
{
    swapcontext(from, to);
}
#endif

/* ---- a group --------------------------------------------------------------------------------- */

typedef enum fiber_state { READY, AT_BARRIER, AT_EXCHANGE, ENDED } fiber_state;

typedef struct fiber {
    stack_state stack;
    fiber_state state;
    int item;
    unsigned exchanges;
} fiber;

/* The launch in progress; the process runs one at a time (sim_queue.c). */
static struct {
    sim_launch *launch;
    int items, started, order, first, nfibers;
    int ahead; /* first work-item of the warp that runs ahead; −1: none */
    fiber fibers[SIM_GROUP_MOST];
    char *stacks;
    fiber *current;
    stack_state scheduler;
    /* Values of exchanges, alternately: `bytes` for each work-item. */
    char given[2][SIM_GROUP_MOST * SIM_GIVEN_MOST] __attribute__((aligned(16)));
} now;
static __thread sigjmp_buf fault;
static __thread volatile sig_atomic_t running;

/* The next work-item of the group, in the launch's order; −1: all have begun. */
static int next_item(void)
{
    if (now.started == now.items)
        return -1;
    return (int)(((unsigned)now.started++ * (unsigned)now.order + (unsigned)now.first) %
                 (unsigned)now.items);
}

static void set_positions(int item)
{
    unsigned *at = now.launch->kernel->positions;
    const unsigned *n = now.launch->items;
    at[0] = (unsigned)item % n[0];
    at[1] = (unsigned)item / n[0] % n[1];
    at[2] = (unsigned)item / n[0] / n[1];
}

static void fiber_main(void)
{
    fiber *self = now.current;
    for (int item; (item = next_item()) >= 0;) {
        self->item = item;
        self->exchanges = 0;
        set_positions(item);
        now.launch->kernel->entry(now.launch->arguments);
    }
    self->state = ENDED;
    change(&self->stack, &now.scheduler);
    abort(); /* never reached: an ended fiber does not run again */
}

static void hold(fiber_state state)
{
    fiber *self = now.current;
    self->state = state;
    change(&self->stack, &now.scheduler);
    set_positions(self->item);
}

static void barrier(void)
{
    hold(AT_BARRIER);
}

/* Stores the value of a work-item and returns the values of all work-items of its warp, when all
 * are stored. Two arrays are used alternately, because a work-item may store its next value before
 * others have read the previous one. Each warp has its own part of the arrays. */
static const void *share(const void *value, int bytes)
{
    fiber *self = now.current;
    const int turn = self->exchanges++ & 1, warp = now.launch->kernel->warp,
              first = self->item & ~(warp - 1);
    char *all = &now.given[turn][(size_t)first * SIM_GIVEN_MOST];
    memcpy(all + (size_t)(self->item - first) * (size_t)bytes, value, (size_t)bytes);
    hold(AT_EXCHANGE);
    return all;
}

static void exchange(void *value, int bytes, int lane)
{
    const char *all = share(value, bytes);
    memcpy(value, all + (size_t)lane * (size_t)bytes, (size_t)bytes);
}

static void run_fiber(fiber *f)
{
    now.current = f;
    change(&now.scheduler, &f->stack);
}

/* Starts all work-items. A new fiber is made only if all earlier ones wait in a work-item. */
static void start(void)
{
    while (now.started < now.items) {
        fiber *f = &now.fibers[now.nfibers];
        prepare_stack(&f->stack, now.stacks + (size_t)now.nfibers * STACK, fiber_main);
        f->state = READY;
        now.nfibers++;
        run_fiber(f);
    }
}

static int count(fiber_state state, int first, int last)
{
    int n = 0;
    for (int k = 0; k < now.nfibers; k++)
        n += now.fibers[k].state == state && now.fibers[k].item >= first &&
             now.fibers[k].item < last;
    return n;
}

static int release(fiber_state state, int first, int last)
{
    int n = 0;
    for (int k = 0; k < now.nfibers; k++) {
        fiber *f = &now.fibers[k];
        if (f->state == state && f->item >= first && f->item < last)
            f->state = READY, n++;
    }
    return n;
}

/* Lets work-items continue whose warp waits as a whole for an exchange, or whose group waits as a
 * whole at a barrier. Returns how many. */
static int release_all(void)
{
    const int warp = now.launch->kernel->warp;
    int n = 0;
    for (int k = 0; k < now.items; k += warp) {
        const int last = k + warp < now.items ? k + warp : now.items;
        if (count(AT_EXCHANGE, k, last) == last - k)
            n += release(AT_EXCHANGE, k, last);
    }
    return count(AT_BARRIER, 0, now.items) == now.items ? release(AT_BARRIER, 0, now.items) : n;
}

/* Continues the work-items from `from` to before `to` that may continue, in a random order. */
static bool run_ready(int from, int to)
{
    const int begin = (int)sim_random((unsigned)now.nfibers);
    const bool back = sim_random(2);
    bool any = false;
    for (int k = 0; k < now.nfibers; k++) {
        fiber *f = &now.fibers[(begin + (back ? now.nfibers - 1 - k : k)) % now.nfibers];
        if (f->state == READY && f->item >= from && f->item < to) {
            run_fiber(f);
            any = true;
        }
    }
    return any;
}

/* In half of the groups one warp runs ahead, up to a barrier or its end, as warps do on a device.
 * Otherwise all warps would make their exchanges at the same time, and a missing barrier could stay
 * unnoticed. */
static void run_round(void)
{
    if (now.ahead < 0 || !run_ready(now.ahead, now.ahead + now.launch->kernel->warp))
        run_ready(0, now.items);
}

static void choose_ahead(void)
{
    const int warp = now.launch->kernel->warp, warps = (now.items + warp - 1) / warp;
    now.ahead = warps > 1 && sim_random(2) ? (int)sim_random((unsigned)warps) * warp : -1;
}

static bool run_group(void)
{
    now.started = now.nfibers = 0;
    /* A group must not use what an earlier group left in local memory. */
    memset(now.launch->kernel->shared, 0xff, now.launch->kernel->shared_bytes);
    /* If the number of work-items is a power of two, any odd distance from one to the next visits
     * all of them; for other numbers the distance is 1. */
    now.order = (now.items & (now.items - 1)) ? 1 : (int)(2 * sim_random(512) + 1);
    now.first = (int)sim_random((unsigned)now.items);
    choose_ahead();
    start();
    while (count(ENDED, 0, now.items) < now.nfibers) {
        if (release_all() == 0 && count(READY, 0, now.items) == 0) {
            sim_say("%s: some work-items wait at a barrier that others never reach",
                    now.launch->kernel->name);
            return false;
        }
        run_round();
    }
    return true;
}

/* ---- a launch -------------------------------------------------------------------------------- */

/* Handles an access to memory that the kernel may not use: of another device, of the host, or
 * freed. */
static struct sigaction earlier[2];
static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (running) {
        sim_say("%s on device %d used the address %p, which is not its memory",
                now.launch->kernel->name, now.launch->kernel->device->id, info->si_addr);
        siglongjmp(fault, 1);
    }
    fprintf(stderr, "the host used the address %p, perhaps of a simulated device\n", info->si_addr);
    sigaction(signal, &earlier[signal == SIGBUS], NULL);
}

static void catch_faults(void)
{
    static bool done;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    if (done)
        return;
    sigaction(SIGSEGV, &action, &earlier[0]);
    sigaction(SIGBUS, &action, &earlier[1]);
    done = true;
}

static bool run_groups(sim_launch *l)
{
    unsigned *at = l->kernel->positions;
    const uint64_t all = (uint64_t)l->groups[0] * l->groups[1] * l->groups[2];
    const uint64_t first = sim_random((unsigned)(all < 1u << 30 ? all : 1u << 30));
    memcpy(at + 6, l->items, 3 * sizeof *at);
    memcpy(at + 9, l->groups, 3 * sizeof *at);
    for (uint64_t k = 0; k < all; k++) {
        const uint64_t g = (k + first) % all;
        at[3] = (unsigned)(g % l->groups[0]);
        at[4] = (unsigned)(g / l->groups[0] % l->groups[1]);
        at[5] = (unsigned)(g / l->groups[0] / l->groups[1]);
        if (!run_group())
            return false;
    }
    return true;
}

int sim_run(sim_launch *l)
{
    static const sim_calls calls = {.barrier = barrier, .exchange = exchange, .share = share};
    volatile int error = SIM_ILLEGAL_ADDRESS;
    sim_device *d = l->kernel->device;
    if (!l->kernel->entry)
        return SIM_OK;
    catch_faults();
    if (!now.stacks)
        now.stacks = mmap(NULL, (size_t)SIM_GROUP_MOST * STACK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    now.launch = l;
    now.items = (int)(l->items[0] * l->items[1] * l->items[2]);
    *l->kernel->calls = &calls;
    sim_memory_show(d, true);
    if (sigsetjmp(fault, 1) == 0) {
        running = 1;
        error = run_groups(l) ? SIM_OK : SIM_LAUNCH_FAILED;
    }
    running = 0;
    sim_memory_show(d, false);
    return error;
}
