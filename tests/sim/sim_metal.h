/* sim_metal.h: shared by the files of the simulated Metal. */
#ifndef SIM_METAL_H
#define SIM_METAL_H

#include "sim.h"
#include "sim_objc.h"

typedef struct sim_mtl_buffer {
    sim_object head;
    char *bytes; /* for the host */
    size_t size;
} sim_mtl_buffer;

typedef struct sim_mtl_pipeline {
    sim_object head;
    sim_kernel *kernel;
} sim_mtl_pipeline;

extern const sim_class sim_mtl_buffer_class, sim_mtl_pipeline_class;
extern sim_device sim_mtl_device;

/* The limits of the simulated device. */
enum { SIM_MTL_COMMANDS = 64 };
/* Makes a queue (sim_metal_queue.c). */
fxi_id sim_mtl_queue_new(void);
/* Work other than a kernel, copy or fill: `run` is called when the command buffer runs, and `end`
 * when it is freed. `microseconds` are those of the simulated GPU. */
typedef struct sim_mtl_task {
    void (*run)(void *data);
    void (*end)(void *data);
    void *data;
    int64_t microseconds;
} sim_mtl_task;
/* Adds it to a command buffer, which has no open encoder. */
void sim_mtl_add_task(fxi_id command, const sim_mtl_task *task);
/* The classes of MPS (sim_mps.c), as objects. */
extern sim_object sim_mps_layouts, sim_mps_matrices, sim_mps_multiplications;
/* Makes an autoreleased error. */
sim_object *sim_mtl_error(long code, const char *text);
/* Held while the simulated device works or changes. */
void sim_mtl_lock(void);
void sim_mtl_unlock(void);

#endif
