/* onednn_plugin.c: the entry of the oneDNN plugin: the table that the CPU backend loads, and the
 * functions that matrix products and convolutions share. */
#include "onednn.h"
#include <stdio.h>
#include <string.h>

extern FX_API const fxi_kernel_library fx_plugin; /* at the end of this file */
const fxi_kernel_host *fxi_onednn_host;
dnnl_engine_t fxi_onednn_engine;

/* ---- threads --------------------------------------------------------------------------------- */

/* Functions of the OpenMP library that oneDNN is linked with; NULL in a build of oneDNN without
 * OpenMP. */
extern int omp_get_max_threads(void) __attribute__((weak));
extern void omp_set_num_threads(int n) __attribute__((weak));

int fxi_onednn_enter(void)
{
    const int before = omp_get_max_threads && omp_set_num_threads ? omp_get_max_threads() : 1;
    if (before > 1)
        omp_set_num_threads(1);
    return before;
}

void fxi_onednn_leave(int before)
{
    if (before > 1)
        omp_set_num_threads(before);
}

typedef struct parts {
    fxi_onednn_part part;
    void *user;
    int status; /* atomic: the first failure, or FX_OK */
} parts;

static void run_part(void *user, int64_t k, void *scratch)
{
    parts *p = user;
    const int status = (int)p->part(p->user, k, scratch);
    int none = FX_OK;
    if (status != FX_OK)
        __atomic_compare_exchange_n(&p->status, &none, status, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
}

fx_status fxi_onednn_parts(int64_t n, int64_t bytes, fxi_onednn_part part, void *user)
{
    parts p = {part, user, FX_OK};
    const fx_status status = fxi_onednn_host->parallel(n, (size_t)bytes, run_part, &p);
    return status ? status : (fx_status)p.status;
}

/* ---- primitives ------------------------------------------------------------------------------ */

/* Any failure but a lack of memory means that oneDNN cannot compute the step; cflux's own kernels
 * then compute it. */
fx_status fxi_onednn_status(dnnl_status_t s)
{
    return s == dnnl_success         ? FX_OK
           : s == dnnl_out_of_memory ? FX_STATUS_MEMORY
                                     : FX_STATUS_UNSUPPORTED;
}

dnnl_data_type_t fxi_onednn_type(int dtype)
{
    return dtype == FX_DTYPE_F32    ? dnnl_f32
           : dtype == FX_DTYPE_BF16 ? dnnl_bf16
                                    : dnnl_data_type_undef;
}

bool fxi_onednn_epilogue(const fx_step *s, int axis)
{
    const fx_program epilogue = fx_step_program(s);
    if (epilogue.n == 0)
        return true;
    if (epilogue.n > 1 || s->nin != 3 || epilogue.instr[0].op != FX_OP_ADD ||
        s->out.dtype != FX_DTYPE_F32 || s->in[2].dtype != FX_DTYPE_F32)
        return false;
    /* A bias has stride 1 along the axis and 0 along all others. */
    bool bias = true;
    for (int d = 0; d < s->in[2].ndim; d++)
        bias = bias && s->in[2].stride[d] == (d == axis && s->in[2].shape[d] != 1);
    return bias;
}

dnnl_status_t fxi_onednn_attr(dnnl_primitive_attr_t *out)
{
    *out = NULL;
    const dnnl_status_t s = dnnl_primitive_attr_create(out);
    /* Several threads run one primitive at the same time, each with its own scratch memory. */
    return s ? s : dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
}

fx_status fxi_primitive_create(fxi_primitive *p, dnnl_primitive_desc_t pd)
{
    const char *name = "";
    *p = (fxi_primitive){.pd = pd};
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    /* oneDNN's reference code ("ref") is slow, and its convolutions by unfolding ("gemm:jit") are
     * no faster than the CPU backend's own. */
    const bool slow = strncmp(name, "ref", 3) == 0 || strstr(name, "gemm:jit");
    const fx_status status =
        slow ? FX_STATUS_UNSUPPORTED : fxi_onednn_status(dnnl_primitive_create(&p->call, pd));
    if (status) {
        fxi_primitive_free(p);
        return status;
    }
    p->scratch_md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch = (int64_t)dnnl_memory_desc_get_size(p->scratch_md);
    return FX_OK;
}

void fxi_primitive_free(fxi_primitive *p)
{
    if (p->call)
        dnnl_primitive_destroy(p->call);
    if (p->pd)
        dnnl_primitive_desc_destroy(p->pd);
    memset(p, 0, sizeof *p);
}

fx_status fxi_reorder_create(fxi_primitive *p, md_ref from, md_ref to)
{
    *p = (fxi_primitive){0};
    /* Equal layouts need no conversion: p->call stays NULL. */
    if (dnnl_memory_desc_equal(from, to))
        return FX_OK;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = fxi_onednn_attr(&attr);
    if (!s)
        s = dnnl_reorder_primitive_desc_create(&pd, from, fxi_onednn_engine, to, fxi_onednn_engine,
                                               attr);
    dnnl_primitive_attr_destroy(attr);
    if (s)
        return fxi_onednn_status(s);
    *p = (fxi_primitive){.pd = pd};
    const fx_status status = fxi_onednn_status(dnnl_primitive_create(&p->call, pd));
    if (status) {
        fxi_primitive_free(p);
        return status;
    }
    p->scratch_md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch = (int64_t)dnnl_memory_desc_get_size(p->scratch_md);
    return FX_OK;
}

enum { MOST_ARGS = 6 };

static dnnl_status_t execute(const fxi_primitive *p, int n, const dnnl_exec_arg_t *args)
{
    dnnl_stream_t stream = NULL;
    dnnl_status_t s = dnnl_stream_create(&stream, fxi_onednn_engine, dnnl_stream_default_flags);
    if (s)
        return s;
    s = dnnl_primitive_execute(p->call, stream, n, args);
    if (!s)
        s = dnnl_stream_wait(stream);
    dnnl_stream_destroy(stream);
    return s;
}

fx_status fxi_primitive_run(const fxi_primitive *p, int n, const fxi_onednn_arg *args,
                            void *scratch)
{
    dnnl_exec_arg_t list[MOST_ARGS + 1];
    dnnl_status_t s = dnnl_success;
    int made = 0;
    const int threads = fxi_onednn_enter();
    for (; made < n && !s; made++) {
        list[made] = (dnnl_exec_arg_t){.arg = args[made].which};
        s = dnnl_memory_create(&list[made].memory, args[made].as, fxi_onednn_engine, args[made].at);
    }
    if (!s && p->scratch) {
        list[made].arg = DNNL_ARG_SCRATCHPAD;
        s = dnnl_memory_create(&list[made].memory, p->scratch_md, fxi_onednn_engine, scratch);
        made++;
    }
    if (s)
        made--; /* the last one was not created */
    else
        s = execute(p, made, list);
    for (int i = 0; i < made; i++)
        dnnl_memory_destroy(list[i].memory);
    fxi_onednn_leave(threads);
    const fx_status status = fxi_onednn_status(s);
    /* The step was accepted when it was prepared, so it is too late for other kernels. */
    return status == FX_STATUS_UNSUPPORTED ? FX_STATUS_INTERNAL : status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *open_plugin(const fxi_kernel_host *host)
{
    static char text[120];
    fxi_onednn_host = host;
    /* The structs of another major version are not those for which this file was compiled. */
    const int major = dnnl_version()->major;
    if (major != DNNL_VERSION_MAJOR) {
        snprintf(text, sizeof text, "it was built for oneDNN %d, but oneDNN %d is installed",
                 DNNL_VERSION_MAJOR, major);
        return text;
    }
    const dnnl_status_t s = dnnl_engine_create(&fxi_onednn_engine, dnnl_cpu, 0);
    if (s)
        snprintf(text, sizeof text, "oneDNN does not support this processor (status %d)", (int)s);
    return s ? text : NULL;
}

static fx_status prepare(const fx_step *step, fxi_kernel_ready **out)
{
    *out = NULL;
    const int threads = fxi_onednn_enter();
    const fx_status status = step->op == FX_OP_MATMUL ? fxi_onednn_matmul_prepare(step, out)
                             : step->op == FX_OP_CONV ? fxi_onednn_conv_prepare(step, out)
                                                      : FX_STATUS_UNSUPPORTED;
    fxi_onednn_leave(threads);
    if (!status)
        (*out)->library = &fx_plugin;
    return status;
}

static void release(fxi_kernel_ready *ready)
{
    fxi_onednn_ready *r = (fxi_onednn_ready *)ready;
    r->release(r);
    fxi_onednn_host->free(r);
}

static fx_status run_step(const fxi_kernel_ready *ready, const fx_step *step, const void *const *in,
                          void *out, fx_run *run)
{
    const fxi_onednn_ready *r = (const fxi_onednn_ready *)ready;
    const fx_status status = r->run(r, in, out, run->work);
    if (status)
        fxi_onednn_host->fail(status, fx_op_name(step->op),
                              status == FX_STATUS_MEMORY ? "out of memory" : "oneDNN failed");
    return status;
}

FX_PLUGIN_EXPORT(fxi_kernel_library) = {.head = FXI_KERNEL_HEAD("oneDNN"),
                                        .open = open_plugin,
                                        .prepare = prepare,
                                        .release = release,
                                        .run = run_step};
