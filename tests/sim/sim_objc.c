/* sim_objc.c: the simulated Objective-C runtime; see sim_objc.h.
 */
#include "sim_objc.h"
#include "sim.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DECLARE(name, result, symbol, arguments)                                                   \
    __attribute__((visibility("default"))) result symbol arguments;
FXI_OBJC_FUNCTIONS(DECLARE)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int mistakes; /* atomic */

void sim_mistake(const char *form, ...)
{
    char text[400];
    va_list list;
    va_start(list, form);
    vsnprintf(text, sizeof text, form, list);
    va_end(list);
    sim_say("mistake: %s", text);
    __atomic_fetch_add(&mistakes, 1, __ATOMIC_RELAXED);
}

/* ---- objects --------------------------------------------------------------------------------- */

/* Living objects of each class; the classes are few. */
enum { CLASSES = 32 };
static struct {
    const sim_class *class;
    long living, retained; /* retained: references beyond the first one */
} counts[CLASSES];

static void count(const sim_class *c, long living, long retained)
{
    int k = 0;
    pthread_mutex_lock(&lock);
    while (k < CLASSES - 1 && counts[k].class && counts[k].class != c)
        k++;
    counts[k].class = c;
    counts[k].living += living;
    counts[k].retained += retained;
    pthread_mutex_unlock(&lock);
}

void *sim_object_new(const sim_class *c, size_t size)
{
    sim_object *o = calloc(1, size);
    if (!o)
        abort();
    *o = (sim_object){.isa = c, .retains = 1};
    count(c, 1, 0);
    return o;
}

bool sim_is(const sim_object *o, const sim_class *c)
{
    return o && o->isa == c;
}

sim_object *sim_retain(void *object)
{
    sim_object *o = object;
    if (o && o->retains > 0) {
        __atomic_fetch_add(&o->retains, 1, __ATOMIC_RELAXED);
        count(o->isa, 0, 1);
    }
    return o;
}

void sim_release(void *object)
{
    sim_object *o = object;
    if (!o || o->retains < 0)
        return;
    const long left = __atomic_sub_fetch(&o->retains, 1, __ATOMIC_ACQ_REL);
    if (left > 0) {
        count(o->isa, 0, -1);
        return;
    }
    count(o->isa, -1, 0);
    if (o->isa->dealloc)
        o->isa->dealloc(o);
    free(o);
}

long sim_live_objects(void)
{
    long n = 0;
    pthread_mutex_lock(&lock);
    for (int k = 0; k < CLASSES; k++)
        n += counts[k].living;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- autorelease pools ----------------------------------------------------------------------- */

/* Objects of the thread's pools, in order; a pool is the number of objects at its beginning. */
enum { POOLED = 256 };
static __thread struct {
    sim_object *objects[POOLED];
    int n, pools;
} pooled;

sim_object *sim_autorelease(void *object)
{
    sim_object *o = object;
    if (pooled.pools == 0)
        sim_mistake("a %s belongs to no autorelease pool of its thread", o->isa->name);
    else if (pooled.n == POOLED)
        sim_mistake("an autorelease pool has more than %d objects", POOLED);
    else
        pooled.objects[pooled.n++] = o;
    return o;
}

void *objc_autoreleasePoolPush(void)
{
    pooled.pools++;
    return (void *)(intptr_t)(pooled.n + 1);
}

void objc_autoreleasePoolPop(void *pool)
{
    const int first = (int)(intptr_t)pool - 1;
    if (--pooled.pools < 0 || first > pooled.n)
        sim_mistake("an autorelease pool ends that is not the innermost one");
    while (pooled.n > first)
        sim_release(pooled.objects[--pooled.n]);
}

fxi_id objc_retain(fxi_id object)
{
    return sim_retain(object);
}

void objc_release(fxi_id object)
{
    sim_release(object);
}

/* ---- selectors and messages ------------------------------------------------------------------ */

struct fxi_objc_selector {
    char name[128];
};

fxi_sel sel_registerName(const char *name)
{
    enum { SELECTORS = 128 };
    static struct fxi_objc_selector all[SELECTORS];
    int k = 0;
    pthread_mutex_lock(&lock);
    while (k < SELECTORS - 1 && *all[k].name && strcmp(all[k].name, name) != 0)
        k++;
    snprintf(all[k].name, sizeof all[k].name, "%s", name);
    pthread_mutex_unlock(&lock);
    return &all[k];
}

static const sim_method *method_of(const sim_object *o, const char *selector)
{
    const sim_method *m = o->isa->methods;
    while (m->selector && strcmp(m->selector, selector) != 0)
        m++;
    return m->selector ? m : NULL;
}

static bool responds(fxi_id self, fxi_sel sel, fxi_sel asked)
{
    (void)sel;
    return method_of(self, asked->name) != NULL;
}

/* A message to nil does nothing and returns 0. */
static uintptr_t nothing(void)
{
    return 0;
}

/* objc_msgSend calls this function, and jumps to the function that it returns. */
__attribute__((used, visibility("hidden"))) void (*sim_find(fxi_id self, fxi_sel sel))(void);
void (*sim_find(fxi_id self, fxi_sel sel))(void)
{
    static const sim_method of_all = SIM_METHOD(responds, "respondsToSelector:", responds);
    const sim_method *m = self ? method_of(self, sel->name) : NULL;
    if (m)
        return m->function;
    if (self && strcmp(sel->name, of_all.selector) == 0)
        return of_all.function;
    if (self)
        sim_mistake("%s does not understand %s", self->isa->name, sel->name);
    return (void (*)(void))nothing;
}

/* Saves the registers that may hold arguments. */
#if defined __x86_64__
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend, @function\nobjc_msgSend:\n"
        "pushq %rdi\npushq %rsi\npushq %rdx\npushq %rcx\npushq %r8\npushq %r9\nsubq $136, %rsp\n"
        "movaps %xmm0, (%rsp)\nmovaps %xmm1, 16(%rsp)\nmovaps %xmm2, 32(%rsp)\n"
        "movaps %xmm3, 48(%rsp)\nmovaps %xmm4, 64(%rsp)\nmovaps %xmm5, 80(%rsp)\n"
        "movaps %xmm6, 96(%rsp)\nmovaps %xmm7, 112(%rsp)\n"
        "call sim_find\n"
        "movaps (%rsp), %xmm0\nmovaps 16(%rsp), %xmm1\nmovaps 32(%rsp), %xmm2\n"
        "movaps 48(%rsp), %xmm3\nmovaps 64(%rsp), %xmm4\nmovaps 80(%rsp), %xmm5\n"
        "movaps 96(%rsp), %xmm6\nmovaps 112(%rsp), %xmm7\n"
        "addq $136, %rsp\npopq %r9\npopq %r8\npopq %rcx\npopq %rdx\npopq %rsi\npopq %rdi\n"
        "jmp *%rax\n.size objc_msgSend, . - objc_msgSend\n");
#elif defined __aarch64__
__asm__(
    ".text\n.globl objc_msgSend\n.type objc_msgSend, %function\nobjc_msgSend:\n"
    "stp x29, x30, [sp, #-224]!\nstp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]\n"
    "stp x4, x5, [sp, #48]\nstp x6, x7, [sp, #64]\nstr x8, [sp, #80]\n"
    "stp q0, q1, [sp, #96]\nstp q2, q3, [sp, #128]\nstp q4, q5, [sp, #160]\n"
    "stp q6, q7, [sp, #192]\n"
    "bl sim_find\n"
    "mov x16, x0\nldp q0, q1, [sp, #96]\nldp q2, q3, [sp, #128]\nldp q4, q5, [sp, #160]\n"
    "ldp q6, q7, [sp, #192]\nldp x0, x1, [sp, #16]\nldp x2, x3, [sp, #32]\nldp x4, x5, [sp, #48]\n"
    "ldp x6, x7, [sp, #64]\nldr x8, [sp, #80]\nldp x29, x30, [sp], #224\n"
    "br x16\n.size objc_msgSend, . - objc_msgSend\n");
#else
#error "the simulated objc_msgSend knows x86-64 and arm64"
#endif

fxi_id objc_getClass(const char *name)
{
    for (int k = 0; sim_named_classes[k]; k++)
        if (strcmp(sim_named_classes[k]->isa->name, name) == 0)
            return sim_named_classes[k];
    return NULL;
}

/* ---- strings --------------------------------------------------------------------------------- */

typedef struct string {
    sim_object head;
    char *text;
} string;

static void string_dealloc(sim_object *o)
{
    free(((string *)o)->text);
}

static const sim_class string_class;

sim_object *sim_string(const char *text)
{
    string *s = sim_object_new(&string_class, sizeof *s);
    s->text = strdup(text);
    return sim_autorelease(s);
}

const char *sim_string_text(const sim_object *s)
{
    if (!sim_is(s, &string_class)) {
        sim_mistake("%s is not a string", s ? s->isa->name : "nil");
        return "";
    }
    return ((const string *)s)->text;
}

static fxi_id string_with(fxi_id self, fxi_sel sel, const char *text)
{
    (void)self, (void)sel;
    return sim_string(text);
}

static const char *string_utf8(fxi_id self, fxi_sel sel)
{
    (void)sel;
    return sim_string_text(self);
}

static const sim_method string_methods[] = {SIM_METHOD(utf8, "UTF8String", string_utf8),
                                            {NULL, NULL}};
static const sim_class string_class = {"NSString", string_methods, string_dealloc, false};
const sim_method sim_string_class_methods[] = {
    SIM_METHOD(string, "stringWithUTF8String:", string_with), {NULL, NULL}};

/* ---- the end of the process ------------------------------------------------------------------ */

__attribute__((destructor)) static void check_objects(void)
{
    for (int k = 0; k < CLASSES && counts[k].class; k++) {
        const sim_class *c = counts[k].class;
        if (counts[k].living > 0 && !c->kept)
            sim_mistake("%ld objects of class %s are left", counts[k].living, c->name);
        if (counts[k].retained != 0)
            sim_mistake("objects of class %s have %ld references too many", c->name,
                        counts[k].retained);
    }
    if (mistakes > 0)
        _exit(SIM_MISTAKEN);
}
