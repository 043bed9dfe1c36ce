/* every_device.h: runs a group of tests on every available device: each instruction set of the CPU,
 * ref, and OpenCL if its backend is in FX_PLUGIN_PATH. */
#ifndef CFLUX_TEST_EVERY_DEVICE_H
#define CFLUX_TEST_EVERY_DEVICE_H

#include "composite_check.h"
#include "cpu_simd.h"

#include <cflux/device.h>
#include <stdlib.h>

static fx_device *device; /* of the tests that run now */
static bool slow;         /* the device compiles a kernel for each expression */

/* Random bits, the same in every run. */
static uint64_t random_state = 88172645463325252u;
static inline uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Calls `run`, which runs the group under the given name, for each device. Returns the number of
 * failed tests. */
static int run_on_every_device(int (*run)(const char *name))
{
    static const char *const names[] = {"base", "avx2", "avx512"};
    int failed = 0;
    device = fx_cpu_device();
    for (int k = 0; k < 3; k++)
        if (fxi_cpu_simd_choose(names[k]))
            failed += run(names[k]);
        else
            print_message("skipped: no %s on this machine\n", names[k]);
    device = fx_device_get("ref", 0);
    failed += run("ref");
    if (!getenv("FX_PLUGIN_PATH"))
        return failed;
    device = fx_device_find("opencl:0");
    if (!device || fx_error_take().status != FX_OK) {
        print_message("skipped: no OpenCL device\n");
        return failed;
    }
    slow = true;
    return failed + run("opencl:0");
}

#endif
