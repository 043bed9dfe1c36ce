/* script.h: the script of the stand-in devices, which decides which calls fail, and their counters.
 * Each plugin has its own copy. */
#ifndef CFLUX_TEST_SCRIPT_H
#define CFLUX_TEST_SCRIPT_H

#include "standin.h"

/* The functions that tests reach by proc("standin"). */
extern const standin script_table;

/* `most`: maximum number of buffers of a kernel; 0: no limit. STANDIN_BUFFERS in the environment
 * overrides it. */
void script_open(int most);
/* Counts a call. Returns true if it must fail; `why` then gives the reason. */
bool script_fails(const fx_device *device, standin_call call, size_t bytes, char why[200]);
bool script_lost(const fx_device *device);
/* The device's memory in bytes: the test's value, or the default. */
int64_t script_capacity(const fx_device *device);
/* Additional bytes of work space per step. */
int64_t script_work(const fx_device *device);
/* Counts an allocation (1) or a release (-1). */
void script_block(const fx_device *device, int change);
/* Maximum number of buffers of a kernel; 0: no limit. */
int script_buffers(void);
/* True if the step has too many buffers; `why` then holds the message. */
bool script_overfull(const fx_device *device, const fx_step *step, const fx_run *run,
                     char why[200]);
/* True if devices run collective steps on their own memory. */
bool script_collectives(void);
/* Records a prepared step. True if `prepare` must refuse it. */
bool script_refuses(const fx_device *device, const fx_step *step);

#endif
