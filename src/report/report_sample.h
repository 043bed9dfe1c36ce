/* report_sample.h: writes the sample predictions of a report. */
#ifndef CFLUX_REPORT_SAMPLE_H
#define CFLUX_REPORT_SAMPLE_H

#include "json_value.h"

#include <cflux/json_out.h>

/* Writes the samples of an end event as elements of the open array. Images become bytes from 0 to
 * 255 in base64, {"width", "height", "channels", "pixels"}; large ones are shrunk. Others become
 * {"input": the first numbers}. Each sample has "length" (of its input), "target" and "guess". With
 * `classes`, the latter two are names, and "right" is added, and "chance" (the probability of the
 * guess) or "score". "worst" marks the worst mistakes. False if out of memory. */
bool fxi_report_samples(fx_json *j, const fxi_json *end, const fxi_json *classes);

#endif
