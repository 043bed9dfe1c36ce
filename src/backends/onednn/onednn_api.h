/* onednn_api.h: one interface to oneDNN 2.x and 3.x.
 *
 * Their C interfaces differ in two ways that matter here. A memory descriptor is a struct in 2.x
 * and a handle in 3.x. An operation is described by a struct of its own in 2.x and by the arguments
 * of a function in 3.x. The version is chosen when the plugin is built. Functions return oneDNN's
 * status.
 */
#ifndef CFLUX_ONEDNN_API_H
#define CFLUX_ONEDNN_API_H

#include <dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
#define ONEDNN_3 1
typedef const_dnnl_memory_desc_t md_ref;
#else
#define ONEDNN_3 0
typedef const dnnl_memory_desc_t *md_ref;
#endif

/* A memory descriptor that we own; `ref` is the form in which oneDNN's functions take it. */
typedef struct md {
    md_ref ref;
    dnnl_memory_desc_t own;
} md;

static inline dnnl_status_t md_tag(md *m, int n, const dnnl_dims_t sizes, dnnl_data_type_t type,
                                   dnnl_format_tag_t tag)
{
#if ONEDNN_3
    const dnnl_status_t s = dnnl_memory_desc_create_with_tag(&m->own, n, sizes, type, tag);
    m->ref = m->own;
#else
    const dnnl_status_t s = dnnl_memory_desc_init_by_tag(&m->own, n, sizes, type, tag);
    m->ref = &m->own;
#endif
    return s;
}

static inline dnnl_status_t md_strides(md *m, int n, const dnnl_dims_t sizes, dnnl_data_type_t type,
                                       const dnnl_dims_t strides)
{
#if ONEDNN_3
    const dnnl_status_t s = dnnl_memory_desc_create_with_strides(&m->own, n, sizes, type, strides);
    m->ref = m->own;
#else
    const dnnl_status_t s = dnnl_memory_desc_init_by_strides(&m->own, n, sizes, type, strides);
    m->ref = &m->own;
#endif
    return s;
}

static inline void md_free(md *m)
{
#if ONEDNN_3
    if (m->own)
        dnnl_memory_desc_destroy(m->own);
    m->own = 0;
#else
    (void)m;
#endif
}

/* A convolution for oneDNN: x ∗ w = y, whichever of them is computed. */
typedef struct conv_desc {
    md_ref x, w, y, bias;                        /* bias: forward only, or NULL */
    dnnl_dims_t stride, dilation, before, after; /* dilation: distance of taps − 1 */
} conv_desc;

static inline dnnl_status_t conv_forward_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                            const conv_desc *c, dnnl_primitive_attr_t attr)
{
#if ONEDNN_3
    return dnnl_convolution_forward_primitive_desc_create(
        out, engine, dnnl_forward_training, dnnl_convolution_direct, c->x, c->w, c->bias, c->y,
        c->stride, c->dilation, c->before, c->after, attr);
#else
    dnnl_convolution_desc_t d;
    const dnnl_status_t s = dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_training, dnnl_convolution_direct, c->x, c->w, c->bias, c->y, c->stride,
        c->dilation, c->before, c->after);
    return s ? s : dnnl_primitive_desc_create(out, &d, attr, engine, 0);
#endif
}

static inline dnnl_status_t conv_data_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                         const conv_desc *c, dnnl_primitive_attr_t attr,
                                         dnnl_primitive_desc_t forward)
{
#if ONEDNN_3
    return dnnl_convolution_backward_data_primitive_desc_create(
        out, engine, dnnl_convolution_direct, c->x, c->w, c->y, c->stride, c->dilation, c->before,
        c->after, forward, attr);
#else
    dnnl_convolution_desc_t d;
    const dnnl_status_t s = dnnl_dilated_convolution_backward_data_desc_init(
        &d, dnnl_convolution_direct, c->x, c->w, c->y, c->stride, c->dilation, c->before, c->after);
    return s ? s : dnnl_primitive_desc_create(out, &d, attr, engine, forward);
#endif
}

static inline dnnl_status_t conv_weight_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                           const conv_desc *c, dnnl_primitive_attr_t attr,
                                           dnnl_primitive_desc_t forward)
{
#if ONEDNN_3
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, engine, dnnl_convolution_direct, c->x, c->w, 0, c->y, c->stride, c->dilation,
        c->before, c->after, forward, attr);
#else
    dnnl_convolution_desc_t d;
    const dnnl_status_t s = dnnl_dilated_convolution_backward_weights_desc_init(
        &d, dnnl_convolution_direct, c->x, c->w, 0, c->y, c->stride, c->dilation, c->before,
        c->after);
    return s ? s : dnnl_primitive_desc_create(out, &d, attr, engine, forward);
#endif
}

static inline dnnl_status_t matmul_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine, md_ref a,
                                      md_ref b, md_ref bias, md_ref c, dnnl_primitive_attr_t attr)
{
#if ONEDNN_3
    return dnnl_matmul_primitive_desc_create(out, engine, a, b, bias, c, attr);
#else
    dnnl_matmul_desc_t d;
    const dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, bias, c);
    return s ? s : dnnl_primitive_desc_create(out, &d, attr, engine, 0);
#endif
}

#endif
