/* gpu_texts.c: builds kernel texts with a runtime that only collects them; see gpu_texts.h. */
#include "gpu_texts.h"
#include "gpu_host.h"
#include "gpu_steps.h"
#include "gpu_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

gpu_text gpu_texts[GPU_TEXTS_MOST];
int gpu_texts_count, gpu_texts_steps;

static fxi_gpu_runtime recorder;
static fxi_gpu_limits recorder_limits;
static const gpu_case *current;

static fx_status record(fx_device *device, const char *name, const char *source, void **out)
{
    (void)device;
    *out = gpu_texts;
    for (int k = 0; k < gpu_texts_count; k++)
        if (strcmp(gpu_texts[k].source, source) == 0)
            return FX_OK;
    assert_true(gpu_texts_count < GPU_TEXTS_MOST);
    const char *end = strstr(source, fxi_gpu_text_arithmetic);
    assert_non_null(end);
    gpu_text *t = &gpu_texts[gpu_texts_count++];
    t->source = strdup(source);
    assert_non_null(t->source);
    t->prelude = (size_t)(end - source) + strlen(fxi_gpu_text_arithmetic);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->step, sizeof t->step, "%s", current->name);
    return FX_OK;
}

static const fxi_gpu_limits *limits(fx_device *device)
{
    (void)device;
    return &recorder_limits;
}

static void prepare(void *unused, const gpu_case *c)
{
    fx_step step = c->step;
    (void)unused;
    current = c;
    const fx_status status = fxi_gpu_prepare(&recorder, &gpu_host_device, &step);
    if (status == FX_OK)
        gpu_texts_steps++;
    else if (recorder.dialect != FXI_GPU_METAL || !strstr(gpu_host_error, "Float64"))
        fail_msg("%s: %s", c->name, gpu_host_error);
    fxi_gpu_release(&recorder, &gpu_host_device, &step);
}

void gpu_texts_render_for(fxi_gpu_dialect dialect, const fxi_gpu_limits *its)
{
    gpu_texts_free();
    gpu_texts_steps = 0;
    recorder_limits = *its;
    recorder = (fxi_gpu_runtime){
        .dialect = dialect, .host = &gpu_host_services, .limits = limits, .kernel = record};
    gpu_visit(prepare, NULL);
    if (dialect == FXI_GPU_CUDA)
        gpu_visit_attention(prepare, NULL);
}

static fxi_gpu_limits usual_limits(fxi_gpu_dialect dialect)
{
    const bool metal = dialect == FXI_GPU_METAL;
    return (fxi_gpu_limits){FXI_GPU_USUAL_LIMITS, .units = 100,
                            .param_bytes = 1024,  .buffers = metal ? 30 : FXI_GPU_BUFFERS,
                            .f64 = !metal,        .atomic64 = !metal,
                            .atomic_f32 = metal};
}

void gpu_texts_render(fxi_gpu_dialect dialect, bool serial)
{
    fxi_gpu_limits its = usual_limits(dialect);
    its.serial = serial;
    gpu_texts_render_for(dialect, &its);
}

void gpu_texts_render_for_warp(fxi_gpu_dialect dialect, int warp)
{
    fxi_gpu_limits its = usual_limits(dialect);
    its.warp = warp;
    gpu_texts_render_for(dialect, &its);
}

static int refusals;

static void prepare_or_refuse(void *unused, const gpu_case *c)
{
    fx_step step = c->step;
    (void)unused;
    current = c;
    gpu_host_error[0] = '\0';
    const fx_status status = fxi_gpu_prepare(&recorder, &gpu_host_device, &step);
    if (status == FX_STATUS_UNSUPPORTED && fx_step_is_fused(&step) && !*gpu_host_error)
        refusals++;
    else if (status != FX_OK)
        fail_msg("%s: %s", c->name, gpu_host_error);
    fxi_gpu_release(&recorder, &gpu_host_device, &step);
}

int gpu_texts_refusals(const fxi_gpu_limits *its)
{
    gpu_texts_free();
    refusals = 0;
    recorder_limits = *its;
    recorder = (fxi_gpu_runtime){
        .dialect = FXI_GPU_CUDA, .host = &gpu_host_services, .limits = limits, .kernel = record};
    gpu_visit(prepare_or_refuse, NULL);
    gpu_texts_free();
    return refusals;
}

void gpu_texts_free(void)
{
    for (int k = 0; k < gpu_texts_count; k++)
        free(gpu_texts[k].source);
    gpu_texts_count = 0;
}
