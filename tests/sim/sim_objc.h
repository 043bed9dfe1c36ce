/* sim_objc.h: a simulated Objective-C runtime: objects with counts of references, classes,
 * selectors, autorelease pools and `objc_msgSend`. sim_metal.c makes the classes of Metal.
 *
 * A mistake of the plugin is printed and counted: a message that the object does not understand, an
 * object that is released too often, one that belongs to no pool. The process then ends with the
 * status SIM_MISTAKEN, also if its tests pass. At the end of the process no object may be left that
 * the plugin does not keep for ever, and none may be retained twice.
 */
#ifndef SIM_OBJC_H
#define SIM_OBJC_H

#include "metal_api.h"

enum { SIM_MISTAKEN = 70 };

typedef struct fxi_objc_object sim_object;
typedef struct sim_method {
    const char *selector; /* NULL ends a list */
    void (*function)(void);
} sim_method;
typedef struct sim_class {
    const char *name;
    const sim_method *methods;
    void (*dealloc)(sim_object *o); /* NULL: the object has nothing of its own */
    bool kept;                      /* the plugin keeps objects of the class until the end */
} sim_class;
/* Every object begins with this. */
struct fxi_objc_object {
    const sim_class *isa;
    long retains; /* −1: a class, which is never freed */
};

/* Makes an object of `size` bytes with one reference. */
void *sim_object_new(const sim_class *c, size_t size);
sim_object *sim_autorelease(void *object);
sim_object *sim_retain(void *object);
void sim_release(void *object);
bool sim_is(const sim_object *o, const sim_class *c);
/* Prints a mistake of the plugin and counts it. */
void sim_mistake(const char *form, ...) __attribute__((format(printf, 1, 2)));
/* Objects that exist; tests find this function by dlsym. */
__attribute__((visibility("default"))) long sim_live_objects(void);

/* An autoreleased string. */
sim_object *sim_string(const char *text);
const char *sim_string_text(const sim_object *string);

/* The classes that objc_getClass finds (sim_metal.c); ends with NULL. */
extern sim_object *const sim_named_classes[];
extern const sim_method sim_string_class_methods[];

/* A row of a list of methods. The function must have the signature with which the plugin calls the
 * selector, else the file does not compile. */
#define SIM_METHOD(name, its_selector, its_function)                                               \
    {                                                                                              \
        .selector = its_selector,                                                                  \
        .function = __builtin_choose_expr(                                                         \
            __builtin_types_compatible_p(__typeof__(&its_function), fxi_mtl_##name),               \
            (void (*)(void))its_function, (void)0)                                                 \
    }

#endif
