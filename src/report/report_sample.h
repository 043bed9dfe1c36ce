/* report_sample.h: the sample predictions of a report. */
#ifndef CFLUX_REPORT_SAMPLE_H
#define CFLUX_REPORT_SAMPLE_H

#include "json_value.h"

#include <cflux/json_out.h>

/* Writes the samples of an end event as elements of the open array. Those that are images become
 * bytes from 0 to 255 in base64, {"width", "height", "channels", "pixels"}, made smaller where they
 * are large; others {"input": the first numbers, "length"}. Each has "target" and "guess"; with
 * `classes` they are names, and there are "right" and "chance", the probability of the guess. False
 * without memory. */
bool fxi_report_samples(fx_json *j, const fxi_json *end, const fxi_json *classes);

#endif
