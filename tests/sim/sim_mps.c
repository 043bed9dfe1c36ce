/* sim_mps.c: the simulated Metal Performance Shaders: matrices of Float32, and their products,
 * which add in Float64. What MPS refuses is a mistake of the plugin (sim_objc.h): a
 * matrix that leaves its buffer, sizes that do not fit each other, an open encoder.
 *
 * Environment, beside that of sim_metal.c:
 *   SIM_MPS=1         0: MPS does not support the device
 *   SIM_MPS_TIME=10   microseconds that a product takes; a kernel takes SIM_KERNEL_TIME=100
 */
#include "sim_metal.h"

#include <stdlib.h>

__attribute__((visibility("default"))) bool MPSSupportsMTLDevice(fxi_id device);
bool MPSSupportsMTLDevice(fxi_id device)
{
    return device && sim_setting("SIM_MPS", 1) != 0;
}

static int scripted(const char *selector)
{
    bool lost;
    return sim_script(selector, &lost);
}

/* ---- matrices -------------------------------------------------------------------------------- */

typedef struct layout {
    sim_object head;
    fxi_ns_uint rows, columns, row_bytes;
} layout;

typedef struct matrix {
    sim_object head;
    layout of;
    sim_mtl_buffer *buffer;
    fxi_ns_uint offset;
} matrix;

static const sim_method no_methods[] = {{NULL, NULL}};
static const sim_class layout_class = {"MPSMatrixDescriptor", no_methods, NULL, true};

static fxi_id layout_with(fxi_id self, fxi_sel sel, fxi_ns_uint rows, fxi_ns_uint columns,
                          fxi_ns_uint row_bytes, uint32_t type)
{
    (void)self, (void)sel;
    if (type != FXI_MPS_FLOAT32 || rows == 0 || columns == 0 || row_bytes % 4 != 0 ||
        row_bytes < 4 * columns)
        sim_mistake("a layout of %lux%lu in rows of %lu bytes", rows, columns, row_bytes);
    layout *l = sim_object_new(&layout_class, sizeof *l);
    l->rows = rows;
    l->columns = columns;
    l->row_bytes = row_bytes;
    return sim_autorelease(l);
}

static fxi_id matrix_with(fxi_id self, fxi_sel sel, fxi_id buffer, fxi_ns_uint offset, fxi_id of)
{
    matrix *m = (matrix *)self;
    (void)sel;
    if (scripted("initWithBuffer:offset:descriptor:")) {
        sim_release(m);
        return NULL;
    }
    if (!sim_is(buffer, &sim_mtl_buffer_class) || !sim_is(of, &layout_class)) {
        sim_mistake("a matrix of something else than a buffer and a layout");
        return self;
    }
    m->of = *(layout *)of;
    m->buffer = (sim_mtl_buffer *)sim_retain(buffer);
    m->offset = offset;
    if (offset % 4 == 0 && offset + m->of.rows * m->of.row_bytes <= m->buffer->size)
        return self;
    sim_mistake("a matrix from byte %lu on leaves its buffer of %zu bytes", offset,
                m->buffer->size);
    sim_release(m);
    return NULL;
}

static void matrix_dealloc(sim_object *o)
{
    sim_release(((matrix *)o)->buffer);
}

static const sim_method matrix_methods[] = {
    SIM_METHOD(matrix, "initWithBuffer:offset:descriptor:", matrix_with), {NULL, NULL}};
static const sim_class matrix_class = {"MPSMatrix", matrix_methods, matrix_dealloc, false};

static fxi_id matrix_alloc(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return sim_object_new(&matrix_class, sizeof(matrix));
}

static float *element(const matrix *m, size_t row, size_t column)
{
    return (float *)(void *)(m->buffer->bytes + m->offset + row * m->of.row_bytes) + column;
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct multiplication {
    sim_object head;
    bool transpose_left, transpose_right;
    fxi_ns_uint rows, columns, interior;
} multiplication;

typedef struct product {
    multiplication of;
    matrix *left, *right, *result;
} product;

/* Of op(m). */
static const float *factor(const matrix *m, bool transposed, size_t row, size_t column)
{
    return transposed ? element(m, column, row) : element(m, row, column);
}

static void run_product(void *data)
{
    const product *p = data;
    const multiplication *of = &p->of;
    double *sums = malloc(of->columns * sizeof *sums);
    if (!sums)
        abort();
    for (size_t row = 0; row < of->rows; row++) {
        for (size_t c = 0; c < of->columns; c++)
            sums[c] = 0;
        for (size_t k = 0; k < of->interior; k++) {
            const double left = (double)*factor(p->left, of->transpose_left, row, k);
            for (size_t c = 0; c < of->columns; c++)
                sums[c] += left * (double)*factor(p->right, of->transpose_right, k, c);
        }
        for (size_t c = 0; c < of->columns; c++)
            *element(p->result, row, c) = (float)sums[c];
    }
    free(sums);
}

static void end_product(void *data)
{
    product *p = data;
    sim_release(p->left);
    sim_release(p->right);
    sim_release(p->result);
    free(p);
}

static fxi_id multiplication_with(fxi_id self, fxi_sel sel, fxi_id device, bool left, bool right,
                                  fxi_ns_uint rows, fxi_ns_uint columns, fxi_ns_uint interior,
                                  double alpha, double beta)
{
    multiplication *m = (multiplication *)self;
    (void)sel;
    if (scripted("MPSMatrixMultiplication")) {
        sim_release(m);
        return NULL;
    }
    if (!device || alpha != 1 || beta != 0)
        sim_mistake("a product without a device, or %g times it plus %g times the result", alpha,
                    beta);
    m->transpose_left = left;
    m->transpose_right = right;
    m->rows = rows;
    m->columns = columns;
    m->interior = interior;
    return self;
}

static bool has_size(const matrix *m, bool transposed, fxi_ns_uint rows, fxi_ns_uint columns)
{
    return m->of.rows == (transposed ? columns : rows) &&
           m->of.columns == (transposed ? rows : columns);
}

static void multiplication_encode(fxi_id self, fxi_sel sel, fxi_id command, fxi_id left,
                                  fxi_id right, fxi_id result)
{
    const multiplication *m = (multiplication *)self;
    (void)sel;
    if (!sim_is(left, &matrix_class) || !sim_is(right, &matrix_class) ||
        !sim_is(result, &matrix_class) ||
        !has_size((matrix *)left, m->transpose_left, m->rows, m->interior) ||
        !has_size((matrix *)right, m->transpose_right, m->interior, m->columns) ||
        !has_size((matrix *)result, false, m->rows, m->columns)) {
        sim_mistake("a product of matrices whose sizes are not %lux%lux%lu", m->rows, m->columns,
                    m->interior);
        return;
    }
    product *p = malloc(sizeof *p);
    if (!p)
        abort();
    *p = (product){*m, (matrix *)sim_retain(left), (matrix *)sim_retain(right),
                   (matrix *)sim_retain(result)};
    const sim_mtl_task task = {run_product, end_product, p, sim_setting("SIM_MPS_TIME", 10)};
    sim_mtl_add_task(command, &task);
}

static const sim_method multiplication_methods[] = {
    SIM_METHOD(multiplication,
               "initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:"
               "interiorColumns:alpha:beta:",
               multiplication_with),
    SIM_METHOD(multiply,
               "encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:", multiplication_encode),
    {NULL, NULL}};
static const sim_class multiplication_class = {"MPSMatrixMultiplication", multiplication_methods,
                                               NULL, true};

static fxi_id multiplication_alloc(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return sim_object_new(&multiplication_class, sizeof(multiplication));
}

/* ---- classes as objects ---------------------------------------------------------------------- */

static const sim_method layout_class_methods[] = {
    SIM_METHOD(layout, "matrixDescriptorWithRows:columns:rowBytes:dataType:", layout_with),
    {NULL, NULL}};
static const sim_method matrix_class_methods[] = {SIM_METHOD(allocate, "alloc", matrix_alloc),
                                                  {NULL, NULL}};
static const sim_method multiplication_class_methods[] = {
    SIM_METHOD(allocate, "alloc", multiplication_alloc), {NULL, NULL}};
static const sim_class meta[] = {
    {"MPSMatrixDescriptor", layout_class_methods, NULL, true},
    {"MPSMatrix", matrix_class_methods, NULL, true},
    {"MPSMatrixMultiplication", multiplication_class_methods, NULL, true}};
sim_object sim_mps_layouts = {&meta[0], -1}, sim_mps_matrices = {&meta[1], -1},
           sim_mps_multiplications = {&meta[2], -1};
