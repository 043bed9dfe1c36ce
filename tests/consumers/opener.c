/* opener.c: a program that is not linked with cflux opens it at run time, as a plugin of another
 * program does. Threads use the library and end after it was closed. Argument: the library. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { ROUNDS = 50, CPU_THREADS = 3, SIZE = 300 };

static pthread_barrier_t computed, closed;
static const char *path;

/* One element of the product of two matrices of ones, which is large enough for several threads of
 * the library. */
static void *multiply(void *result)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return NULL;
    int (*const set_num_threads)(int) =
        (int (*)(int))(uintptr_t)dlsym(library, "fx_set_num_threads");
    void *(*const full)(int, double, int, const int64_t *) =
        (void *(*)(int, double, int, const int64_t *))(uintptr_t)dlsym(library, "fxi_full");
    void *(*const matmul)(void *, void *) =
        (void *(*)(void *, void *))(uintptr_t)dlsym(library, "fx_matmul");
    double (*const at)(void *, int64_t) =
        (double (*)(void *, int64_t))(uintptr_t)dlsym(library, "fx_at");
    const int64_t sizes[] = {SIZE, SIZE};
    set_num_threads(CPU_THREADS);
    *(double *)result = at(matmul(full(0, 1, 2, sizes), full(0, 1, 2, sizes)), 0);
    dlclose(library);
    return NULL;
}

static void *multiply_and_wait(void *result)
{
    multiply(result);
    pthread_barrier_wait(&computed);
    pthread_barrier_wait(&closed);
    return NULL;
}

int main(int argc, char **argv)
{
    path = argc > 1 ? argv[1] : "libcflux.so";
    double sum = 0, result = 0;
    void *first = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!first) {
        printf("%s\n", dlerror());
        return 1;
    }
    pthread_barrier_init(&computed, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, multiply_and_wait, &result);
        pthread_barrier_wait(&computed);
        if (i == 0)
            dlclose(first);
        pthread_barrier_wait(&closed);
        pthread_join(thread, NULL);
        sum += result;
        multiply(&result); /* by the main thread */
        sum += result;
    }
    printf("opened %d times: %g\n", 2 * ROUNDS, sum / (2 * ROUNDS));
    return 0;
}
