/* target_scale.h: finds targets that are too large or too small to be learned. */
#ifndef CFLUX_TOOL_TARGET_SCALE_H
#define CFLUX_TOOL_TARGET_SCALE_H

#include "train_run.h"

/* Warns if the targets are numbers that the training steps of the run cannot reach from 0, or that
 * are much smaller than the outputs of a new model. Examines the losses mse, mae and huber_loss
 * with a rule whose training steps have a fixed size, such as Adam; not with --init or --schedule.
 */
void warn_of_target_scale(const train_run *r);

#endif
