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
/* Work-items of a group, at most, of every pipeline. */
fxi_ns_uint sim_mtl_items(void);
/* Makes a queue (sim_metal_queue.c). */
fxi_id sim_mtl_queue_new(void);
/* Makes an autoreleased error. */
sim_object *sim_mtl_error(long code, const char *text);
/* Held while the simulated device works or changes. */
void sim_mtl_lock(void);
void sim_mtl_unlock(void);

#endif
