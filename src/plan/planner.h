/* planner.h: everything that the planner knows about a backend and about the mode of the process.
 * The planner reads no environment variable, writes no log and calls a backend only through the
 * pointers in this table, so a test can plan for a device that does not exist.
 */
#ifndef CFLUX_PLANNER_H
#define CFLUX_PLANNER_H

#include <cflux/backend.h>
#include "node.h"

typedef struct fxi_planner {
    bool views; /* the backend's kernels take strided operands */
    bool fuses; /* the kernels take steps of several instructions and outputs, and the caller allows
                   them */
    bool rows;  /* with `fuses`: row steps as well */
    int32_t buffers; /* the most buffers that a step may have (fx_step_buffers) */
    bool own_memory; /* the device has memory of its own: literals are written to it, and each step
                        that runs alone is at least one launch */
    /* The device is the library's own CPU backend, whose steps can do more than the plugin
     * interface allows: epilogues of convolutions may also subtract, multiply by and divide by a
     * number or a value of each output channel; PAD steps may pad several axes (FXI_PAD_AXES); the
     * operands of a CONCAT step may already be inside its output (inside.c). */
    bool is_cpu;
    bool checks; /* the plan is checked (fxi_plan_check) */
    /* Extra bytes after the work space of each step, which no step may write. */
    int64_t work_guard;
    /* Does the device prefer channels last for this conv or pool step? NULL: never. */
    bool (*channels_last)(fx_device *device, const fx_step *step);
    /* Does the device prefer this step, which computes all gradients of attention, to two steps?
     * NULL: never. */
    bool (*attention)(fx_device *device, const fx_step *step);
    /* Does the backend run this collective step? NULL: never. */
    bool (*collective)(fx_device *device, const fx_step *step);
    bool begins; /* the backend can begin such a step */
    /* Makes a step ready. FX_STATUS_UNSUPPORTED: the backend cannot run the operations of this
     * fused step together. NULL: steps need no preparation. */
    fx_status (*prepare)(fx_device *device, fx_step *step);
    /* Completes n steps that `prepare` has made ready; *out_step: the first that fails. NULL:
     * nothing to complete. */
    fx_status (*compile)(fx_device *device, fx_step *steps, int32_t n, int32_t *out_step);
    void (*release)(fx_device *device, fx_step *step); /* NULL only if `prepare` is NULL */
    /* Makes a plan ready as a whole. FX_STATUS_UNSUPPORTED: this plan runs step by step. NULL: all
     * plans run step by step. */
    fx_status (*plan_prepare)(fx_device *device, fx_plan *plan);
    void (*plan_release)(fx_device *device, fx_plan *plan); /* NULL only if `plan_prepare` is */
    /* Called with a new value n and the reason why it does not take over the memory of the value
     * that it replaces. NULL: no report. */
    void (*denied)(const fxi_node *n, const char *why);
} fxi_planner;

#endif
