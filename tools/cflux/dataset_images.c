/* dataset_images.c: folders of images: see dataset_images.h. */
#include "dataset_images.h"
#include "failure.h"
#include "image_file.h"
#include "system.h"
#include "text_parts.h"
#include <stdlib.h>
#include <string.h>

/* ---- the files ------------------------------------------------------------------------------- */

typedef struct image_entry {
    char *path;  /* owned */
    char *class; /* owned; NULL: none */
    image_size size;
} image_entry;

typedef struct image_list {
    image_entry *items;
    int64_t n, capacity;
    const char *folder, *class; /* where each_file looks, and the class there */
    bool failed;                /* out of memory */
    char *empty;                /* a folder of a class without images; owned */
} image_list;

static char *joined_path(const char *folder, const char *name)
{
    const size_t n = strlen(folder), slash = n > 0 && folder[n - 1] == '/' ? 0 : 1;
    char *path = malloc(n + slash + strlen(name) + 1);
    if (path)
        sprintf(path, "%s%s%s", folder, slash ? "/" : "", name);
    return path;
}

static void add_image(const char *name, void *user)
{
    image_list *l = user;
    char *path = l->failed ? NULL : joined_path(l->folder, name);
    if (name[0] == '.' || !is_image_name(name) || !path || kind_of_path(path) == PATH_FOLDER) {
        l->failed = !path;
        free(path);
        return;
    }
    if (l->n == l->capacity) {
        const int64_t capacity = l->capacity ? 2 * l->capacity : 64;
        image_entry *items = realloc(l->items, (size_t)capacity * sizeof *items);
        if (!items) {
            free(path);
            l->failed = true;
            return;
        }
        l->items = items;
        l->capacity = capacity;
    }
    char *class = l->class ? strdup(l->class) : NULL;
    l->failed = l->class && !class;
    l->items[l->n++] = (image_entry){.path = path, .class = class};
}

/* The images of one class: those of a folder in the folder. */
static void add_class(const char *name, void *user)
{
    image_list *l = user;
    const char *folder = l->folder;
    char *path = name[0] == '.' || l->failed ? NULL : joined_path(folder, name);
    if (path && kind_of_path(path) == PATH_FOLDER) {
        l->folder = path;
        l->class = name;
        const int64_t before = l->n;
        each_file(path, add_image, l);
        if (l->n == before && !l->empty) {
            l->empty = path;
            path = NULL;
        }
        l->folder = folder;
        l->class = NULL;
    }
    free(path);
}

static void free_list(image_list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        free(l->items[i].path);
        free(l->items[i].class);
    }
    free(l->items);
    free(l->empty);
}

/* In the order of classes and paths, which does not depend on the file system. */
static int by_path(const void *a, const void *b)
{
    const image_entry *p = a, *q = b;
    const int order = p->class && q->class ? strcmp(p->class, q->class) : 0;
    return order ? order : strcmp(p->path, q->path);
}

/* The images in the folder itself, otherwise those in its folders. */
static void list_folder(const char *folder, image_list *l)
{
    l->folder = folder;
    each_file(folder, add_image, l);
    if (l->n == 0)
        each_file(folder, add_class, l);
    if (l->n > 0)
        qsort(l->items, (size_t)l->n, sizeof *l->items, by_path);
}

static char *folder_in(const char *folder, const char *name)
{
    char *path = joined_path(folder, name);
    if (path && kind_of_path(path) == PATH_FOLDER)
        return path;
    free(path);
    return NULL;
}

typedef struct folder_search {
    const char *folder;
    bool found;
} folder_search;

static void note_folder(const char *name, void *user)
{
    folder_search *s = user;
    char *path = name[0] == '.' || s->found ? NULL : folder_in(s->folder, name);
    s->found |= path != NULL;
    free(path);
}

/* A folder "train" with images and no test folder beside it is a class of that name. */
static bool is_class(const char *train, const char *tests)
{
    folder_search s = {.folder = train};
    if (!tests)
        each_file(train, note_folder, &s);
    return !tests && !s.found;
}

/* The folder of the part that is read, NULL if the folder has no parts. The caller frees it. */
static int choose_part(const char *folder, bool test, char **out)
{
    static const char *const names[] = {"test", "val", "valid", "validation"};
    char *train = folder_in(folder, "train"), *tests = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !tests; i++)
        tests = folder_in(folder, names[i]);
    const bool parts = train && !is_class(train, tests);
    *out = !parts ? NULL : test ? tests : train;
    free(*out == train ? NULL : train);
    free(*out == tests ? NULL : tests);
    return *out || !parts
               ? EXIT_FINE
               : fail(EXIT_BAD_INPUT,
                      "%s has a folder train, but no folder test, val, valid or validation",
                      folder);
}

/* named: a folder needs the two parts. */
static int list_images(const char *path, bool test, bool named, image_list *l)
{
    char *part;
    if (kind_of_path(path) != PATH_FOLDER) {
        l->items = calloc(1, sizeof *l->items);
        char *copy = l->items ? strdup(path) : NULL;
        if (copy)
            l->items[l->n++] = (image_entry){.path = copy};
        l->failed = !copy;
    } else {
        const int status = choose_part(path, test, &part);
        if (status != EXIT_FINE)
            return status;
        if (named && !part)
            return fail(EXIT_BAD_INPUT, "--part: %s has no folders train and test", path);
        list_folder(part ? part : path, l);
        free(part);
    }
    return l->failed ? fail(EXIT_FAILED, "%s: no memory for the names of its images", path)
                     : EXIT_FINE;
}

bool holds_images(const char *path)
{
    if (kind_of_path(path) != PATH_FOLDER)
        return is_image_name(path);
    image_list l = {0};
    const bool found = list_images(path, false, false, &l) == EXIT_FINE && l.n > 0;
    free_list(&l);
    return found;
}

/* ---- the pixels ------------------------------------------------------------------------------ */

static int bad_image(const char *path, const char *why)
{
    return fail(EXIT_BAD_INPUT, "%s: this image cannot be read: %s", path, why);
}

/* The size to which all images are changed; 0: they keep theirs. */
static int wanted_size(const data_request *r, image_size *out)
{
    int64_t sizes[FX_MAX_DIMS];
    char why[IMAGE_WHY];
    *out = (image_size){0};
    const int n = r->shape ? read_sizes(r->shape, sizes) : 0;
    if (!r->shape)
        return EXIT_FINE;
    if (n < 2 || n > 3 || (n == 3 && sizes[2] != 1 && sizes[2] != 3))
        return fail(EXIT_BAD_INPUT,
                    "--shape %s: images need width, height and 1 or 3 channels, such as 28x28x1",
                    r->shape);
    *out = (image_size){sizes[0], sizes[1], n == 3 ? sizes[2] : 0};
    return image_size_fits(out, why) ? EXIT_FINE
                                     : fail(EXIT_BAD_INPUT, "--shape %s: %s", r->shape, why);
}

/* Reads the sizes of all images. Without --shape, all images must have the same width and height.
 * Unless --shape gives the channels, there are three if any image has colours, else one. */
static int decide_size(image_list *l, image_size *io_size)
{
    char why[IMAGE_WHY];
    image_size size = *io_size;
    const image_entry *first = &l->items[0];
    for (int64_t i = 0; i < l->n; i++) {
        image_entry *e = &l->items[i];
        if (!image_file_size(e->path, &e->size, why))
            return bad_image(e->path, why);
        if (!io_size->width &&
            (e->size.width != first->size.width || e->size.height != first->size.height))
            return fail(EXIT_BAD_INPUT,
                        "%s is %lld×%lld, but %s is %lld×%lld: --shape resizes all images to one "
                        "size",
                        e->path, (long long)e->size.width, (long long)e->size.height, first->path,
                        (long long)first->size.width, (long long)first->size.height);
        if (!io_size->channels && size.channels < e->size.channels)
            size.channels = e->size.channels;
    }
    if (!io_size->width) {
        size.width = first->size.width;
        size.height = first->size.height;
    }
    *io_size = size;
    return EXIT_FINE;
}

static int read_pixels(const image_entry *e, const image_size *size, unsigned char *out)
{
    char why[IMAGE_WHY] = "";
    if (e->size.width == size->width && e->size.height == size->height)
        return image_file_read(e->path, size, out, why) ? EXIT_FINE : bad_image(e->path, why);
    const image_size whole = {e->size.width, e->size.height, size->channels};
    unsigned char *pixels = malloc((size_t)(whole.width * whole.height * whole.channels));
    bool good = pixels && image_file_read(e->path, &whole, pixels, why);
    if (good && !image_resize(&whole, pixels, size, out))
        good = false;
    free(pixels);
    return good ? EXIT_FINE : bad_image(e->path, why[0] ? why : "out of memory");
}

/* Numbers from 0 to 1, of sizes width × height × channels × images. */
static int read_all(const data_request *r, image_list *l, dataset *d)
{
    image_size size;
    int64_t bytes = 0;
    int status = wanted_size(r, &size);
    if (status == EXIT_FINE)
        status = decide_size(l, &size);
    if (status != EXIT_FINE)
        return status;
    const int64_t each = size.width * size.height * size.channels; /* at most 3 · 2^28 */
    unsigned char *pixels =
        __builtin_mul_overflow(each, l->n, &bytes) ? NULL : malloc((size_t)bytes);
    if (!pixels)
        status = fail(EXIT_FAILED, "%s: no memory for %lld images of %lld×%lld×%lld", r->path,
                      (long long)l->n, (long long)size.width, (long long)size.height,
                      (long long)size.channels);
    for (int64_t i = 0; status == EXIT_FINE && i < l->n; i++)
        status = read_pixels(&l->items[i], &size, pixels + i * each);
    if (status == EXIT_FINE) {
        fx_array *x = fx_from(FX_DTYPE_U8, pixels, size.channels, size.width, size.height, l->n);
        d->x = fx_permute(fx_div(fx_cast(x, FX_DTYPE_F32), 255), 1, 2, 0, 3);
        status = fx_eval(d->x) == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
    }
    free(pixels);
    return status;
}

/* ---- classes and names ----------------------------------------------------------------------- */

/* A named tuple of the different texts, in the order of the list, with the number of each; `out`
 * gets the position of each image's text. */
static void *numbered(const image_list *l, bool classes, fx_array **out)
{
    const char **names = calloc((size_t)l->n, sizeof *names);
    void **counts = calloc((size_t)l->n, sizeof *counts);
    float *at = calloc((size_t)l->n, sizeof *at);
    int64_t n = 0, same = 0;
    const bool good = names && counts && at;
    for (int64_t i = 0; good && i < l->n; i++) {
        const char *text = classes ? l->items[i].class : l->items[i].path;
        same = n > 0 && strcmp(names[n - 1], text) == 0 ? same + 1 : 1;
        n += same == 1;
        names[n - 1] = text;
        counts[n - 1] = fx_scalar((double)same);
        at[i] = (float)(n - 1);
    }
    void *tuple = good ? fx_named_tuple_from((int)n, names, counts) : memory_error();
    *out = good ? fx_from(FX_DTYPE_F32, at, l->n) : NULL;
    free(names);
    free(counts);
    free(at);
    return tuple;
}

/* A class without an image is almost always a mistake. */
static int check_classes(const image_list *l)
{
    if (l->empty)
        return fail(EXIT_BAD_INPUT, "%s: the folder of this class contains no PNG or JPEG images",
                    l->empty);
    for (int64_t i = 0; i < l->n; i++)
        if (!l->items[i].class)
            return fail(EXIT_BAD_INPUT,
                        "%s: this image has no class: put the images of each class into a folder "
                        "with the name of the class, and pass the folder that contains these "
                        "folders to --data",
                        l->items[i].path);
    return EXIT_FINE;
}

static int take_names(const data_request *r, const image_list *l, dataset *d)
{
    d->id_name = "file";
    d->ids = numbered(l, false, &d->id);
    if (fx_is_error(d->ids))
        return fail_library(EXIT_FAILED);
    if (r->unlabelled || r->no_target)
        return EXIT_FINE;
    const int status = check_classes(l);
    if (status != EXIT_FINE)
        return status;
    d->target = "class";
    d->labels = numbered(l, true, &d->y);
    return fx_is_error(d->labels) ? fail_library(EXIT_FAILED) : EXIT_FINE;
}

int read_image_files(const data_request *r, dataset *d)
{
    image_list l = {0};
    int status = list_images(r->path, r->test, r->part, &l);
    if (status == EXIT_FINE && l.n == 0)
        status = fail(EXIT_BAD_INPUT, "%s: its folders contain no PNG or JPEG images", r->path);
    d->kind = "images";
    if (status == EXIT_FINE)
        status = read_all(r, &l, d);
    if (status == EXIT_FINE)
        status = take_names(r, &l, d);
    free_list(&l);
    return status;
}
