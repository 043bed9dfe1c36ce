/* script.h: what the stand-in devices share: the script that tells which calls fail, and counters.
 * Each plugin has its own. */
#ifndef CFLUX_TEST_SCRIPT_H
#define CFLUX_TEST_SCRIPT_H

#include "standin.h"

/* The functions that tests reach by proc("standin"). */
extern const standin script_table;

/* `most`: buffers of a kernel; 0: no limit. STANDIN_BUFFERS in the environment wins. */
void script_open(int most);
/* Counts a call. True: it fails, and `why` says how. */
bool script_fails(const fx_device *device, standin_call call, size_t bytes, char why[200]);
bool script_lost(const fx_device *device);
/* The device's memory in bytes: what a test has set, or else all it has. */
int64_t script_capacity(const fx_device *device);
/* Bytes of work space that each step needs besides what its kernel needs. */
int64_t script_work(const fx_device *device);
/* An allocation is there (1) or gone (-1). */
void script_block(const fx_device *device, int change);
/* The most buffers of a kernel; 0: no limit. */
int script_buffers(void);
/* Does the step have more? The sentence is then in why. */
bool script_overfull(const fx_device *device, const fx_step *step, const fx_run *run,
                     char why[200]);
/* Do devices run collective steps, on their own memory? */
bool script_collectives(void);
/* Notes a step that is prepared. Is `prepare` to refuse it? */
bool script_refuses(const fx_device *device, const fx_step *step);

#endif
