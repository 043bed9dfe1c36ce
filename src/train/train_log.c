/* train_log.c: writes the log of fx_train: see train_log.h. The start event holds the facts that
 * fx_train has: the model, its device, and counts.
 */
#include "train_log.h"
#include "error.h"
#include "memory.h"

#include <cflux/device.h>
#include <cflux/tree.h>

static const char *const OP = "train";

static void first_device(fx_array *x, const char *path, bool trainable, void *user)
{
    fx_device **out = user;
    (void)path;
    (void)trainable;
    *out = *out ? *out : fx_array_device(x);
}

/* Maximum bytes of a model's notation, with its terminator; a longer one is not logged. */
enum { NOTATION_MOST = 1 << 16 };

fx_run_log *fxi_train_log_open(const char *path, const fx_progress *p)
{
    fx_device *device = NULL;
    char *model = fxi_malloc(NOTATION_MOST);
    if (!model) {
        fx_fail(FX_STATUS_MEMORY, OP, "no memory for the start of the log");
        return NULL;
    }
    fx_run_log *log = fx_run_log_open(path, p->step > 0);
    const bool fits = fx_summary(p->model, model, NOTATION_MOST) < NOTATION_MOST;
    fx_visit(p->model, first_device, &device);
    fx_run_log_start(log, .model = fits ? model : NULL,
                     .device = device ? fx_device_name(device) : NULL, .epochs = p->epochs,
                     .parameters = fx_parameter_count(p->model), .resumed_at_step = p->step);
    fxi_free(model);
    return log;
}

void fxi_train_log_epoch(fx_run_log *log, const fx_progress *p, double metric)
{
    fx_run_log_epoch(log, .epoch = p->epoch, .step = p->step, .loss = p->mean_loss,
                     .metric = metric, .seconds = p->seconds);
}

fx_status fxi_train_log_close(fx_run_log *log, const fx_progress *p, const char *why,
                              fx_status status)
{
    const fx_error earlier = fxi_error_begin();
    fx_run_log_end(log, .why = status == FX_OK ? why : "error",
                   .message = status == FX_OK ? NULL : earlier.message, .step = p->step,
                   .seconds = p->seconds);
    fx_run_log_close(log);
    return fxi_error_end(&earlier);
}
