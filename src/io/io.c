/* io.c: fx_save and fx_load: choose the format and do the work that all formats share.
 *
 * The first bytes of a file determine its format. The extension decides only if they do not (an
 * empty file, a text). A file is opened once, by exactly the path that the caller gave.
 */
#include "check_arguments.h"
#include "checkpoint_about.h"
#include "entries_load.h"
#include "error.h"
#include "formats.h"
#include "memory.h"
#include "metadata.h"
#include "object_path.h"
#include "other_files.h"
#include "state_numbers.h"

#include <cflux/io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fxi_format *const formats[] = {
    &fxi_format_bson,
    &fxi_format_safetensors,
    &fxi_format_npy,
    &fxi_format_npz,
};
enum { NFORMATS = sizeof formats / sizeof *formats };

static const char *extension_of(const char *path)
{
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    return dot && (!slash || dot > slash) ? dot : "";
}

static const fxi_format *by_extension(const char *path)
{
    for (int i = 0; i < NFORMATS; i++)
        if (strcmp(formats[i]->extension, extension_of(path)) == 0)
            return formats[i];
    return NULL;
}

static const fxi_format *by_content(const fxi_bytes *file)
{
    for (int i = 0; i < NFORMATS; i++)
        if (formats[i]->sniff(file))
            return formats[i];
    return NULL;
}

static void known_extensions(char *text, size_t capacity)
{
    size_t n = 0;
    for (int i = 0; i < NFORMATS && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%s", i ? ", " : "", formats[i]->extension);
}

static fx_status odd_arguments(const char *op, const char *path, int n)
{
    return fx_fail(FX_STATUS_ARGUMENT, op,
                   "%s: names and objects must alternate after the path, as in fx_%s(path, "
                   "\"model\", model); got %d argument%s",
                   path, op, n, n == 1 ? "" : "s");
}

/* ---- saving ---------------------------------------------------------------------------------- */

static int count_name(int n, const void *const *pairs, const char *name)
{
    int count = 0;
    for (int i = 0; i < n; i += 2)
        count += pairs[i] && strcmp(pairs[i], name) == 0;
    return count;
}

/* Adds the numbers of the optimiser states in an object, which files of arrays would lose. */
static fx_status add_numbers(fxi_saving *what, const char *name, void *object, const char **names,
                             void **objects)
{
    fx_array *numbers = fxi_numbers_of(what->op, object);
    if (!numbers || fx_is_error(numbers))
        return numbers ? fx_array_status(numbers) : FX_OK;
    names[what->n] = fxi_numbers_name(name);
    objects[what->n] = numbers;
    return names[what->n++] ? FX_OK : FX_STATUS_MEMORY;
}

/* Splits the pairs into names and objects. Metadata is not an entry. `arrays`: the format stores
 * only arrays.
 */
static fx_status take_pairs(fxi_saving *what, bool arrays, int n, const void *const *pairs,
                            const char **names, void **objects)
{
    what->names = names;
    what->objects = objects;
    for (int i = 0; i < n; i += 2) {
        if (!pairs[i])
            return fx_fail(FX_STATUS_ARGUMENT, what->op, "name %d is NULL", i / 2);
        if (!pairs[i + 1])
            return fx_fail(FX_STATUS_ARGUMENT, what->op, "the object \"%s\" is NULL",
                           (const char *)pairs[i]);
        if (fx_is(pairs[i + 1], &fxi_metadata_type)) {
            what->metadata = pairs[i + 1];
            continue;
        }
        names[what->n] = pairs[i];
        void *object = (void *)(uintptr_t)pairs[i + 1];
        objects[what->n++] = object;
        /* Objects may share a name if their arrays have different names. Their numbers would have
         * one name, so they are not saved. */
        const fx_status status = arrays && count_name(n, pairs, pairs[i]) == 1
                                     ? add_numbers(what, pairs[i], object, names, objects)
                                     : FX_OK;
        if (status != FX_OK)
            return status;
    }
    return FX_OK;
}

static fx_status write_file(const fxi_format *format, const char *path, const fxi_saving *what)
{
    fxi_file_out out;
    fx_status status = fxi_file_out_open(&out, what->op, path);
    if (status == FX_OK)
        status = format->save(&out, what);
    return fxi_file_out_close(&out, status);
}

static void *load_file(fxi_file *in, const char *op, const char *path);

/* Writes a nameless file and loads it. Returns the status of writing. */
static fx_status write_and_load(const fxi_format *format, const char *path, const fxi_saving *what,
                                void **out_loaded)
{
    fxi_file_out out;
    fxi_file *in = NULL;
    fx_status status = fxi_file_out_try(&out, what->op, path), loaded = FX_OK;
    if (status == FX_OK)
        status = format->save(&out, what);
    const int fd = status == FX_OK ? fxi_file_out_reread(&out) : -1;
    if (fd >= 0)
        loaded = fxi_file_of_descriptor("load", path, fd, &in);
    status = fxi_file_out_close(&out, status);
    if (status == FX_OK)
        *out_loaded = in ? load_file(in, "load", path) : fx_error_array(loaded);
    fxi_file_release(in);
    return status;
}

/* Saves the objects, or with out_loaded saves them in a nameless file and loads that. */
static fx_status save(const char *path, int n, const void *const *names_and_objects,
                      void **out_loaded)
{
    fxi_saving what = {.op = "save"};
    if (!path)
        return fx_fail(FX_STATUS_ARGUMENT, what.op, "the path is NULL or empty");
    if (fxi_check_text(what.op, 1, "a path", path) != FX_OK)
        return FX_STATUS_ARGUMENT;
    if (n % 2 != 0)
        return odd_arguments(what.op, path, n);
    if (fxi_check_list(what.op, "names and objects", n, names_and_objects) != FX_OK ||
        fxi_check_pairs(what.op, 1, n, names_and_objects) != FX_OK)
        return FX_STATUS_ARGUMENT;
    const fxi_format *format = by_extension(path);
    if (!format) {
        char known[200];
        known_extensions(known, sizeof known);
        return fx_fail(FX_STATUS_ARGUMENT, what.op, "%s: unknown extension; use one of %s", path,
                       known);
    }
    void **both = fxi_calloc(2 * (size_t)n + 1, sizeof *both);
    if (!both)
        return fx_fail(FX_STATUS_MEMORY, what.op, "no memory for %d names", n / 2);
    fx_status status =
        take_pairs(&what, format->arrays, n, names_and_objects, (const char **)both, both + n);
    if (status == FX_OK && out_loaded)
        status = write_and_load(format, path, &what, out_loaded);
    else if (status == FX_OK)
        status = write_file(format, path, &what);
    fxi_free(both);
    return status;
}

fx_status fxi_save(const char *path, int n, const void *const *names_and_objects)
{
    FXI_SCOPE;
    return save(path, n, names_and_objects, NULL);
}

fx_status fx_save_try(const char *path, int n, const void *const *names_and_objects,
                      void **out_loaded)
{
    FXI_SCOPE;
    *out_loaded = NULL;
    const fx_status status = save(path, n, names_and_objects, out_loaded);
    if (*out_loaded)
        fx_keep(*out_loaded);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The first bytes of a file as text for a message: printable bytes unchanged, others as in "\x1f".
 */
enum { FIRST_BYTES = 8, FIRST_TEXT = 4 * FIRST_BYTES + 1 };
static void first_bytes(const fxi_bytes *file, char text[FIRST_TEXT])
{
    size_t n = 0;
    for (size_t i = 0; i < file->size && i < FIRST_BYTES; i++) {
        const unsigned char c = file->data[i];
        n += (size_t)snprintf(text + n, FIRST_TEXT - n, c >= ' ' && c < 127 ? "%c" : "\\x%02x", c);
    }
    text[n] = 0;
}

/* The name of bytes without a path, in messages. */
static const char the_bytes[] = "the bytes";

static fx_status no_format(fxi_bytes *file)
{
    char first[FIRST_TEXT], known[200];
    first_bytes(file, first);
    if (file->path == the_bytes)
        return fxi_bytes_fail(file, 0, "unknown format: they start with \"%s\"", first);
    known_extensions(known, sizeof known);
    return fxi_bytes_fail(
        file, 0, "unknown format: the file starts with \"%s\" and its extension is not one of %s",
        first, known);
}

/* The format of a file; NULL if it is unknown. file->status is not FX_OK if the file cannot be read
 * in any format. An empty file gets the format of its extension, but still cannot be read. */
static const fxi_format *format_of(fxi_bytes *file)
{
    const fxi_format *content = by_content(file), *by_name = by_extension(file->path);
    const char *other = fxi_other_file(file, content);
    const fxi_format *format = content ? content : other && file->size > 0 ? NULL : by_name;
    if (format)
        file->format = format->name;
    if (other)
        fxi_bytes_fail(file, 0, "%s", other);
    else if (!format)
        no_format(file);
    return format;
}

static void *load_file(fxi_file *in, const char *op, const char *path)
{
    fxi_bytes file = fxi_file_bytes(in, op, path);
    const fxi_format *format = format_of(&file);
    return file.status == FX_OK ? format->load(&file) : fx_error_array(file.status);
}

static void *load(const char *op, const char *path)
{
    fxi_file *in;
    fx_status status = fxi_check_text(op, 1, "a path", path);
    if (status == FX_OK)
        status = fxi_file_map(op, path, &in);
    if (status != FX_OK)
        return fx_error_array(status);
    void *result = load_file(in, op, path);
    fxi_file_release(in);
    return result;
}

void *fx_load(const char *path)
{
    FXI_SCOPE;
    return fx_keep(load("load", path));
}

void *fx_load_bytes(const void *bytes, size_t size, fx_release_fn release, void *user)
{
    FXI_SCOPE;
    static const char *const op = "load_bytes";
    fxi_file *in = fxi_file_of_bytes(op, bytes, size, release, user);
    if (!in)
        return fx_error_array(bytes ? FX_STATUS_MEMORY : FX_STATUS_ARGUMENT);
    void *result = load_file(in, op, the_bytes);
    fxi_file_release(in);
    return fx_keep(result);
}

static fx_status about_file(fxi_bytes *file, fx_file_info *info)
{
    const fxi_format *format = format_of(file);
    info->bytes = (int64_t)file->size;
    info->format = format ? format->name : "";
    if (file->status != FX_OK)
        return file->status;
    if (format == &fxi_format_safetensors) /* it may be a checkpoint */
        return fxi_checkpoint_about(file, info);
    return format->about ? format->about(file, info) : FX_OK;
}

fx_status fxi_file_about(const char *path, fx_file_info *out)
{
    FXI_SCOPE;
    fxi_file *in;
    fx_file_info info = {.fxi_size = out->fxi_size, .format = ""};
    fx_status status = fxi_file_map("file_about", path, &in);
    if (status == FX_OK) {
        fxi_bytes file = fxi_file_bytes(in, "file_about", path);
        status = about_file(&file, &info);
        fxi_file_release(in);
    }
    memcpy(out, &info, out->fxi_size < sizeof info ? out->fxi_size : sizeof info);
    return status;
}

void *fx_load_key(const char *path, const char *name)
{
    FXI_SCOPE;
    static const char *const op = "load_key";
    if (!name)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, op, "the name is NULL"));
    if (fxi_check_text(op, 2, "a name", name) != FX_OK)
        return fx_error_array(FX_STATUS_ARGUMENT);
    void *file = load(op, path);
    if (fx_is_error(file))
        return file;
    void *found = fxi_object_at(file, name);
    if (!found && !fx_is_array(file))
        found = fxi_entries_below(op, file, name);
    return found ? fx_keep(found)
                 : fx_error_array(fxi_no_entry(FX_STATUS_ARGUMENT, op, path, file, name));
}

/* The object or array at a path of the file. NULL if there is none, or if the path is the name of
 * an array of the file: fxi_entries_load then finds the array by its name. */
static void *part_at(void *file, const char *name)
{
    void *found = *name ? fxi_object_at(file, name) : NULL;
    for (int64_t i = 0; found && fx_is_array(found) && i < fx_count(file); i++)
        if (fx_child(file, i) == found)
            return NULL;
    return found;
}

static fx_array *array_named(void *file, const char *name)
{
    for (int64_t i = 0; i < fx_count(file); i++)
        if (strcmp(fx_child_name(file, i), name) == 0 && fx_is_array(fx_child(file, i)))
            return fx_child(file, i);
    return NULL;
}

/* The numbers of the optimiser states that fx_save wrote as `name`; *out is NULL if a file of
 * arrays has none. A checkpoint has the numbers of its state under a name of their own. */
static fx_status find_numbers(void *file, const char *name, fx_array **out)
{
    const char *named = fxi_numbers_name(name), *in_checkpoint = fxi_numbers_name("");
    *out = NULL;
    if (!named || !in_checkpoint)
        return FX_STATUS_MEMORY;
    *out = array_named(file, named);
    if (!*out && strcmp(name, "state") == 0)
        *out = array_named(file, in_checkpoint);
    return FX_OK;
}

static void say_no_numbers(const char *op, const char *path, const char *name)
{
    fx_message(
        1,
        "%s: %s has no numbers of the optimiser state \"%s\", only arrays; its numbers, such "
        "as the learning rate and Adam's powers of β, are unchanged.",
        op, path, name);
}

/* Loads the arrays of an object that contains optimiser states, and the numbers of these: both or
 * nothing. `before`: the numbers so far, restored after a failure. */
static fx_status load_state(const char *op, const char *path, void *file, const char *name,
                            void *object, fx_array *before)
{
    fx_array *saved;
    fx_status status = find_numbers(file, name, &saved);
    if (status == FX_OK && saved)
        status = fxi_numbers_assign(op, object, saved);
    if (status != FX_OK)
        return status;
    status = fxi_entries_load(op, path, file, name, object);
    if (status != FX_OK)
        fxi_numbers_assign(op, object, before);
    else if (!saved)
        say_no_numbers(op, path, name);
    return status;
}

static fx_status load_arrays(const char *op, const char *path, void *file, const char *name,
                             void *object)
{
    fx_array *numbers = fxi_numbers_of(op, object);
    if (!numbers)
        return fxi_entries_load(op, path, file, name, object);
    return fx_is_error(numbers) ? fx_array_status(numbers)
                                : load_state(op, path, file, name, object, numbers);
}

/* Loads one object: from an object in the file with the same structure, or from a file of arrays by
 * their names. */
static fx_status load_one(const char *op, const char *path, void *file, const char *name,
                          void *object)
{
    if (fx_is_array(file))
        return fx_loadmodel(object, file);
    void *found = part_at(file, name);
    return found ? fx_loadmodel(object, found) : load_arrays(op, path, file, name, object);
}

fx_status fxi_load_into(const char *path, int n, const void *const *names_and_objects)
{
    FXI_SCOPE;
    static const char *const op = "load_into";
    if (fxi_check_list(op, "names and objects", n, names_and_objects) != FX_OK)
        return FX_STATUS_ARGUMENT;
    for (int i = 0; i < n; i++)
        if (!names_and_objects[i])
            return fx_fail(FX_STATUS_ARGUMENT, op, "%s %d is NULL", i % 2 ? "object" : "name",
                           i / 2);
    if (fxi_check_text(op, 1, "a path", path) != FX_OK)
        return FX_STATUS_ARGUMENT;
    if (n % 2 != 0)
        return odd_arguments(op, path ? path : "", n);
    if (fxi_check_pairs(op, 1, n, names_and_objects) != FX_OK)
        return FX_STATUS_ARGUMENT;
    void *file = load(op, path);
    fx_status status = fx_is_error(file) ? fxi_status_of_error(file) : FX_OK;
    for (int i = 0; i < n && status == FX_OK; i += 2)
        status = load_one(op, path, file, names_and_objects[i],
                          (void *)(uintptr_t)names_and_objects[i + 1]);
    return status;
}

/* Counts the names of arrays that occur in both lists. */
static int64_t count_common(fxi_entries *a, const fxi_entries *b)
{
    int64_t n = 0;
    const fxi_entry **order = fxi_entries_sorted(a);
    for (int32_t i = 0; order && i < b->n; i++) {
        const fxi_entry *key = &b->items[i];
        n += bsearch(&key, order, (size_t)a->n, sizeof *order, fxi_entry_by_name) != NULL;
    }
    fxi_free((void *)order);
    return n;
}

/* Lists the arrays of the object under the fields' own names, or under Flux's if more of those are
 * in the file. */
static void walk_as_in_file(fxi_entries *to, const fxi_entries *from, const char *name,
                            void *object)
{
    fxi_entries_walk(to, name, object);
    if (to->status != FX_OK || fx_is_array(object) || count_common(to, from) == from->n)
        return;
    fxi_entries flux = {.op = to->op};
    const fx_error earlier = fxi_error_begin(); /* an error of a part is recorded, not returned */
    void *state = fx_flux_state(object);
    const fx_status failed = fxi_error_end(&earlier);
    if (failed != FX_OK)
        flux.status = fx_fail(failed, to->op, "cannot make the object's state with Flux's names");
    fxi_entries_walk(&flux, name, state);
    const int64_t common = count_common(&flux, from);
    if (flux.status == FX_OK && common > count_common(to, from)) {
        const fxi_entries own = *to;
        *to = flux;
        flux = own;
    }
    if (to->status == FX_OK)
        to->status = flux.status;
    fxi_entries_free(&flux);
}

/* fxi_entries_match for an object that contains optimiser states with the numbers `before`. Numbers
 * have no names, so they are loaded only if all arrays match: a parameter whose moments are not
 * loaded must not get the powers of β of other moments. */
static void *match_state(const char *path, void *file, void *found, const char *name, void *object,
                         fx_array *before, fxi_entries *to, fxi_entries *from)
{
    fx_array *saved = found ? fxi_numbers_of(to->op, found) : NULL;
    fx_status status = saved && fx_is_error(saved) ? fx_array_status(saved)
                       : found                     ? FX_OK
                                                   : find_numbers(file, name, &saved);
    if (status != FX_OK)
        return fx_error_array(status);
    int32_t own = -1; /* the position of the numbers among the arrays of the file */
    for (int32_t i = 0; i < from->n && own < 0 && saved; i++)
        own = from->items[i].array == saved ? i : -1;
    const bool all = fxi_entries_alike(to, from, own);
    if (saved && all) {
        if (own >= 0)
            fxi_entries_remove(from, own);
        status = fxi_numbers_assign(to->op, object, saved);
    }
    void *report = status == FX_OK ? fxi_entries_match(path, to, from) : fx_error_array(status);
    if (fx_is_error(report) && saved && all)
        fxi_numbers_assign(to->op, object, before);
    else if (!fx_is_error(report) && !saved)
        say_no_numbers(to->op, path, name);
    else if (!fx_is_error(report) && !all)
        fx_message(1,
                   "%s: %s: the numbers of the optimiser state \"%s\", such as its learning rate, "
                   "are unchanged, because only some of its arrays match",
                   to->op, path, name);
    return report;
}

void *fx_load_matching(const char *path, const char *name, void *object)
{
    FXI_SCOPE;
    fxi_entries to = {.op = "load_matching"}, from = {.op = to.op};
    if (!name || fxi_check_text(to.op, 1, "a path", path) != FX_OK ||
        fxi_check_text(to.op, 2, "a name", name) != FX_OK)
        return fx_error_array(name ? FX_STATUS_ARGUMENT
                                   : fx_fail(FX_STATUS_ARGUMENT, to.op, "the name is NULL"));
    void *file = load(to.op, path);
    if (fx_is_error(file))
        return file;
    if (fx_is_array(file))
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, to.op,
                    "%s: the array of an .npy file has no name: call fx_load_into", path));
    void *found = part_at(file, name);
    if (found)
        fxi_entries_walk(&from, name, found);
    else
        from = fxi_entries_of(to.op, file, name);
    walk_as_in_file(&to, &from, name, object);
    if (from.n == 0 && (to.n > 0 || !found) && from.status == FX_OK && to.status == FX_OK)
        from.status = found
                          ? fx_fail(FX_STATUS_FORMAT, to.op, "%s: \"%s\" has no arrays", path, name)
                          : fxi_no_entry(FX_STATUS_FORMAT, to.op, path, file, name);
    fx_array *before =
        object && to.status == FX_OK && from.status == FX_OK ? fxi_numbers_of(to.op, object) : NULL;
    void *report = !before ? fxi_entries_match(path, &to, &from)
                   : fx_is_error(before)
                       ? before
                       : match_state(path, file, found, name, object, before, &to, &from);
    fxi_entries_free(&to);
    fxi_entries_free(&from);
    return fx_keep(report);
}
