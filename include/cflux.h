/* cflux.h: Flux for C. One include for the whole library. */
#ifndef CFLUX_H
#define CFLUX_H

#include <cflux/base.h>
#include <cflux/array.h>
#include <cflux/ops.h>
#include <cflux/resample.h>
#include <cflux/grad.h>
#include <cflux/tree.h>
#include <cflux/layer.h>
#include <cflux/nn.h>
#include <cflux/optim.h>
#include <cflux/data.h>
#include <cflux/mlutils.h>
#include <cflux/metrics.h>
#include <cflux/augment.h>
#include <cflux/signal.h>
#include <cflux/json_out.h>
#include <cflux/report.h>
#include <cflux/train.h>
#include <cflux/dist.h>
#include <cflux/io.h>
#include <cflux/predict.h>
#include <cflux/tokenizer.h>
#include <cflux/notation.h>
#include <cflux/device.h>

#ifdef __cplusplus
#include <cflux/cflux.hpp>
#endif
#endif
