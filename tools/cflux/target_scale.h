/* target_scale.h: scales the targets of a run that learns numbers, and finds targets that are too
 * large or too small to be learned without a scale.
 *
 * For each output of the model, μ and σ are the mean and the standard deviation of the targets y of
 * the training part. The run trains with (y − μ)/σ. A model ends in W·h + b if its last layer is a
 * Dense layer with a bias and without an activation. After training, σ·W and σ·b + μ replace W and
 * b, so that the model predicts y. So the saved model contains the scale, and needs no other entry
 * of the file.
 */
#ifndef CFLUX_TOOL_TARGET_SCALE_H
#define CFLUX_TOOL_TARGET_SCALE_H

#include "train_run.h"

/* Sets r->y and r->vy, the targets of training. They are scaled if the loss is mse, mae or
 * huber_loss, the model ends as above, and --raw-targets is not given. `fresh`: the
 * model before --init copied weights to r->t.model. A copied last layer predicts in the units of
 * the data, and is changed to predict the scaled targets; a bias that was copied alone is changed
 * too. Returns EXIT_FINE, or the exit status of a failure (printed). */
int scale_targets(train_run *r, const void *fresh);

/* Changes the last layer of the trained model, so that it predicts in the units of the data. No
 * effect if the targets are not scaled. Returns as scale_targets. */
int unscale_model(train_run *r);

/* Warns if the targets are not scaled, and are numbers that the training steps of the run cannot
 * reach from 0, or that are much smaller than the outputs of a new model. Examines the losses mse,
 * mae and huber_loss with a rule whose training steps have a fixed size, such as Adam; not with
 * --init or --schedule. */
void warn_of_target_scale(const train_run *r);

#endif
