/* report_sample.h: the sample predictions of a report. */
#ifndef CFLUX_TOOL_REPORT_SAMPLE_H
#define CFLUX_TOOL_REPORT_SAMPLE_H

#include "json_out.h"

#include <cjson/cJSON.h>

/* Writes the samples of an end event as elements of the open array. Those that are images become
 * bytes from 0 to 255 in base64, {"width", "height", "channels", "pixels"}, made smaller where they
 * are large; others {"input": the first numbers, "length"}. Each has "target" and "guess"; with
 * `classes` they are names, and there are "right" and "chance", the probability of the guess. False
 * without memory. */
bool report_samples(json_out *j, const cJSON *end, const cJSON *classes);

#endif
