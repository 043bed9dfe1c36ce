/* sim_metal.c: the simulated Metal: the device, its memory, libraries and pipelines. The host's C++
 * compiler compiles the text of a kernel as it is delivered (sim_build.c), and the executor of all
 * simulated devices runs it (sim_run.c). A failure that a test requests (sim.h) has the selector as
 * the name of the function: "newBufferWithLength:options:@3=1".
 *
 * Environment, beside that of sim.h:
 *   SIM_MACOS=13      version of the system; from 15 on MTLCompileOptions has a maths mode
 *   SIM_FAMILIES=3    1: an Apple GPU, 2: has Metal 3, 3: both
 */
#include "sim_metal.h"
#include "sim_build.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sim_device sim_mtl_device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_mtl_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_mtl_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static int scripted(const char *selector)
{
    bool lost;
    return sim_script(selector, &lost);
}

/* ---- errors ---------------------------------------------------------------------------------- */

typedef struct error_object {
    sim_object head;
    long code;
    char text[1 << 12];
} error_object;

static long error_code(fxi_id self, fxi_sel sel)
{
    (void)sel;
    return ((error_object *)self)->code;
}

static fxi_id error_described(fxi_id self, fxi_sel sel)
{
    (void)sel;
    return sim_string(((error_object *)self)->text);
}

static const sim_method error_methods[] = {
    SIM_METHOD(code, "code", error_code),
    SIM_METHOD(described, "localizedDescription", error_described),
    {NULL, NULL}};
static const sim_class error_class = {"NSError", error_methods, NULL, false};

sim_object *sim_mtl_error(long code, const char *text)
{
    error_object *e = sim_object_new(&error_class, sizeof *e);
    e->code = code;
    snprintf(e->text, sizeof e->text, "%s", text);
    return sim_autorelease(e);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The queue's work retains its buffers, so none is freed while it is used. */
bool sim_is_used(const sim_device *d, const char *address, size_t bytes)
{
    (void)d, (void)address, (void)bytes;
    return false;
}

static void *buffer_contents(fxi_id self, fxi_sel sel)
{
    (void)sel;
    return ((sim_mtl_buffer *)self)->bytes;
}

static void buffer_dealloc(sim_object *o)
{
    const sim_mtl_buffer *b = (sim_mtl_buffer *)o;
    sim_mtl_lock();
    sim_memory_free(&sim_mtl_device, sim_mtl_device.addresses + (b->bytes - sim_mtl_device.bytes));
    sim_mtl_unlock();
}

static const sim_method buffer_methods[] = {SIM_METHOD(contents, "contents", buffer_contents),
                                            {NULL, NULL}};
const sim_class sim_mtl_buffer_class = {"MTLBuffer", buffer_methods, buffer_dealloc, true};

static fxi_id device_buffer(fxi_id self, fxi_sel sel, fxi_ns_uint size, fxi_ns_uint options)
{
    void *address;
    (void)self, (void)sel;
    if (options != FXI_MTL_STORAGE_SHARED || size == 0)
        sim_mistake("a buffer of %lu bytes with the options %lu", size, options);
    if (scripted("newBufferWithLength:options:"))
        return NULL;
    sim_mtl_lock();
    const int error = sim_memory_alloc(&sim_mtl_device, size, &address);
    sim_mtl_unlock();
    if (error)
        return NULL;
    sim_mtl_buffer *b = sim_object_new(&sim_mtl_buffer_class, sizeof *b);
    b->bytes = sim_mtl_device.bytes + ((char *)address - sim_mtl_device.addresses);
    b->size = size;
    return &b->head;
}

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct options_object {
    sim_object head;
    bool safe, language; /* what was set */
} options_object;

static void options_math(fxi_id self, fxi_sel sel, long mode)
{
    (void)sel;
    ((options_object *)self)->safe = mode == FXI_MTL_MATH_SAFE;
}

static void options_fast(fxi_id self, fxi_sel sel, bool fast)
{
    (void)sel;
    ((options_object *)self)->safe = !fast;
}

static void options_language(fxi_id self, fxi_sel sel, fxi_ns_uint version)
{
    (void)sel;
    ((options_object *)self)->language = version == FXI_MTL_LANGUAGE_3_0;
}

static const sim_method options_methods[] = {
    SIM_METHOD(set_fast, "setFastMathEnabled:", options_fast),
    SIM_METHOD(set_language, "setLanguageVersion:", options_language),
    {NULL, NULL}};
static const sim_class options_class = {"MTLCompileOptions", options_methods, NULL, false};
/* The same, for macOS 15. */
static const sim_method new_options_methods[] = {
    SIM_METHOD(set_math, "setMathMode:", options_math),
    SIM_METHOD(set_language, "setLanguageVersion:", options_language),
    {NULL, NULL}};
static const sim_class new_options_class = {"MTLCompileOptions", new_options_methods, NULL, false};

static long system_version(void)
{
    return (long)sim_setting("SIM_MACOS", 14);
}

static fxi_id options_new(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return sim_object_new(system_version() >= 15 ? &new_options_class : &options_class,
                          sizeof(options_object));
}

typedef struct library_object {
    sim_object head;
    sim_module *module;
} library_object;
typedef struct function_object {
    sim_object head;
    library_object *library;
    sim_kernel *kernel; /* NULL: a pipeline has taken it */
} function_object;

static void free_kernel(sim_kernel *k)
{
    if (k)
        free((char *)(uintptr_t)k->name);
    free(k);
}

static void function_dealloc(sim_object *o)
{
    const function_object *f = (function_object *)o;
    free_kernel(f->kernel);
    sim_release(f->library);
}

static const sim_method no_methods[] = {{NULL, NULL}};
static const sim_class function_class = {"MTLFunction", no_methods, function_dealloc, false};

static fxi_id library_function(fxi_id self, fxi_sel sel, fxi_id name)
{
    library_object *l = (library_object *)self;
    sim_kernel *kernel;
    (void)sel;
    if (scripted("newFunctionWithName:") ||
        sim_module_function(l->module, sim_string_text(name), &kernel))
        return NULL;
    function_object *f = sim_object_new(&function_class, sizeof *f);
    f->library = (library_object *)sim_retain(l);
    f->kernel = kernel;
    return &f->head;
}

static const sim_method library_methods[] = {
    SIM_METHOD(function, "newFunctionWithName:", library_function), {NULL, NULL}};
static const sim_class library_class = {"MTLLibrary", library_methods, NULL, true};

static void say_compiler_error(fxi_id *out_error, const char *log)
{
    if (out_error)
        *out_error = sim_mtl_error(3, log);
}

static fxi_id device_library(fxi_id self, fxi_sel sel, fxi_id source, fxi_id options,
                             fxi_id *out_error)
{
    static __thread char log[1 << 12], path[600];
    const options_object *o = (options_object *)options;
    const sim_text text = {
        .source = sim_string_text(source), .macros = "", .target = "metal", .warp = 32};
    (void)self, (void)sel;
    if (!o->safe || !o->language)
        sim_mistake("a program is compiled without safe maths, or for no version of the language");
    *log = '\0';
    if (scripted("newLibraryWithSource:options:error:")) {
        say_compiler_error(out_error, "program_source:1:1: error: the test says so\nmore lines");
        return NULL;
    }
    char image[700];
    sim_module *module;
    if (!sim_build(&text, path, sizeof path, log, sizeof log)) {
        say_compiler_error(out_error, log);
        return NULL;
    }
    snprintf(image, sizeof image, "simulated PTX metal3 1\n%s\n", path);
    if (sim_module_load(&sim_mtl_device, image, &module)) {
        say_compiler_error(out_error, "the program cannot be loaded");
        return NULL;
    }
    library_object *l = sim_object_new(&library_class, sizeof *l);
    l->module = module;
    return &l->head;
}

static fxi_ns_uint pipeline_items(fxi_id self, fxi_sel sel)
{
    (void)sel;
    return sim_kernel_items(((sim_mtl_pipeline *)self)->kernel);
}

static fxi_ns_uint pipeline_warp(fxi_id self, fxi_sel sel)
{
    (void)sel;
    return (fxi_ns_uint)((sim_mtl_pipeline *)self)->kernel->warp;
}

static fxi_ns_uint pipeline_memory(fxi_id self, fxi_sel sel)
{
    (void)sel;
    return ((sim_mtl_pipeline *)self)->kernel->shared_bytes;
}

static const sim_method pipeline_methods[] = {
    SIM_METHOD(pipeline_items, "maxTotalThreadsPerThreadgroup", pipeline_items),
    SIM_METHOD(pipeline_warp, "threadExecutionWidth", pipeline_warp),
    SIM_METHOD(pipeline_memory, "staticThreadgroupMemoryLength", pipeline_memory),
    {NULL, NULL}};
static void pipeline_dealloc(sim_object *o)
{
    free_kernel(((sim_mtl_pipeline *)o)->kernel);
}
const sim_class sim_mtl_pipeline_class = {"MTLComputePipelineState", pipeline_methods,
                                          pipeline_dealloc, true};

static fxi_id device_pipeline(fxi_id self, fxi_sel sel, fxi_id function, fxi_id *out_error)
{
    function_object *f = (function_object *)function;
    (void)self, (void)sel;
    if (!f->kernel) {
        sim_mistake("a second pipeline is made of a function");
        return NULL;
    }
    if (f->kernel->shared_bytes > FXI_MTL_GROUP_MEMORY ||
        scripted("newComputePipelineStateWithFunction:error:")) {
        *out_error = sim_mtl_error(3, "Threadgroup memory size exceeds the maximum");
        return NULL;
    }
    sim_mtl_pipeline *p = sim_object_new(&sim_mtl_pipeline_class, sizeof *p);
    p->kernel = f->kernel;
    f->kernel = NULL;
    return &p->head;
}

/* ---- the device ------------------------------------------------------------------------------ */

static fxi_id device_name(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return sim_string("Simulated Apple GPU");
}

static bool device_supports(fxi_id self, fxi_sel sel, long family)
{
    const int64_t families = sim_setting("SIM_FAMILIES", 3);
    (void)self, (void)sel;
    return (family == FXI_MTL_FAMILY_APPLE1 && (families & 1)) ||
           (family == FXI_MTL_FAMILY_METAL3 && (families & 2));
}

static uint64_t device_working_set(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return sim_mtl_device.capacity;
}

static fxi_ns_uint device_allocated(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return __atomic_load_n(&sim_mtl_device.used, __ATOMIC_RELAXED);
}

static fxi_ns_uint device_largest(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return sim_mtl_device.capacity / 2;
}

static fxi_ns_uint device_group_memory(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return FXI_MTL_GROUP_MEMORY;
}

static fxi_id device_queue(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return scripted("newCommandQueue") ? NULL : sim_mtl_queue_new();
}

static const sim_method device_methods[] = {
    SIM_METHOD(name, "name", device_name),
    SIM_METHOD(supports, "supportsFamily:", device_supports),
    SIM_METHOD(working_set, "recommendedMaxWorkingSetSize", device_working_set),
    SIM_METHOD(allocated, "currentAllocatedSize", device_allocated),
    SIM_METHOD(largest, "maxBufferLength", device_largest),
    SIM_METHOD(group_memory, "maxThreadgroupMemoryLength", device_group_memory),
    SIM_METHOD(queue, "newCommandQueue", device_queue),
    SIM_METHOD(buffer, "newBufferWithLength:options:", device_buffer),
    SIM_METHOD(library, "newLibraryWithSource:options:error:", device_library),
    SIM_METHOD(pipeline, "newComputePipelineStateWithFunction:error:", device_pipeline),
    {NULL, NULL}};
static const sim_class device_class = {"MTLDevice", device_methods, NULL, true};

__attribute__((visibility("default"))) fxi_id MTLCreateSystemDefaultDevice(void);
fxi_id MTLCreateSystemDefaultDevice(void)
{
    if (sim_setting("SIM_DEVICES", 1) == 0 ||
        !sim_memory_open(&sim_mtl_device, (size_t)sim_setting("SIM_MEMORY", 1024) << 20))
        return NULL;
    return sim_object_new(&device_class, sizeof(sim_object));
}

/* ---- the system ------------------------------------------------------------------------------ */

static fxi_id system_text(fxi_id self, fxi_sel sel)
{
    char text[80];
    (void)self, (void)sel;
    snprintf(text, sizeof text, "Version %ld.0 (simulated)", system_version());
    return sim_string(text);
}

static bool system_is(fxi_id self, fxi_sel sel, fxi_ns_version v)
{
    (void)self, (void)sel;
    return system_version() > v.major || (system_version() == v.major && v.minor == 0);
}

static const sim_method process_methods[] = {
    SIM_METHOD(system_text, "operatingSystemVersionString", system_text),
    SIM_METHOD(system_is, "isOperatingSystemAtLeastVersion:", system_is),
    {NULL, NULL}};
static const sim_class process_class = {"NSProcessInfo", process_methods, NULL, false};
static sim_object the_process = {&process_class, -1};

static fxi_id process_info(fxi_id self, fxi_sel sel)
{
    (void)self, (void)sel;
    return &the_process;
}

static const sim_method process_class_methods[] = {SIM_METHOD(process, "processInfo", process_info),
                                                   {NULL, NULL}};
static const sim_method options_class_methods[] = {SIM_METHOD(make, "new", options_new),
                                                   {NULL, NULL}};

/* Classes as objects, whose methods are those of the class itself. */
static const sim_class meta[] = {{"NSString", sim_string_class_methods, NULL, true},
                                 {"NSProcessInfo", process_class_methods, NULL, true},
                                 {"MTLCompileOptions", options_class_methods, NULL, true}};
static sim_object string_object = {&meta[0], -1}, process_object = {&meta[1], -1},
                  options_object_of_class = {&meta[2], -1};
sim_object *const sim_named_classes[] = {&string_object,
                                         &process_object,
                                         &options_object_of_class,
                                         &sim_mps_layouts,
                                         &sim_mps_matrices,
                                         &sim_mps_multiplications,
                                         NULL};
