/* kernel_cache.c: reads, writes and removes the files of compiled kernels; kernel_cache.h describes
 * them.
 */
#include "kernel_cache.h"
#include "c_text.h"
#include "error.h"
#include "files.h"
#include "hash.h"
#include "memory.h"
#include "number_variable.h"
#include "private_folder.h"
#include "this_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEGABYTES_MOST = 512 };

typedef struct head {
    char mark[8];
    uint64_t key_size, size; /* bytes of the key and of the contents */
    uint64_t hash;           /* of both */
} head;

/* The number is the version of the file format: files of another version are ignored. */
static const char mark[8] = "cflux 2";

/* ---- keys ------------------------------------------------------------------------------------ */

/* The key in a file: the texts of fx_kernel_key after cflux's version, each with its final zero
 * byte. */
enum { TEXTS = 6 };
typedef struct whole_key {
    char *bytes; /* NULL: no memory */
    size_t size;
} whole_key;

static whole_key key_of(const fx_kernel_key *k)
{
    const char *const texts[TEXTS] = {FX_VERSION_STRING, k->backend, k->target,
                                      k->compiler,       k->options, k->source};
    whole_key key = {.size = 0};
    for (int i = 0; i < TEXTS; i++)
        key.size += strlen(texts[i]) + 1;
    key.bytes = fxi_malloc(key.size);
    char *at = key.bytes;
    for (int i = 0; i < TEXTS && at; i++)
        at = fxi_copy_text(at, texts[i]) + 1;
    return key;
}

static uint64_t hash_of(const void *key, size_t key_size, const void *code, size_t size)
{
    return fxi_hash(code, size, fxi_hash(key, key_size, 0));
}

/* The texts of a key from a file. False if it has another number of texts, or another version. */
static bool read_key(const char *bytes, size_t size, fx_kernel_key *out)
{
    const char *texts[TEXTS] = {NULL}, *at = bytes, *end = bytes + size;
    int n = 0;
    for (; n < TEXTS && at < end; n++) {
        texts[n] = at;
        at = memchr(at, 0, (size_t)(end - at));
        if (!at++)
            return false;
    }
    *out = (fx_kernel_key){texts[1], texts[2], texts[3], texts[4], texts[5]};
    return n == TEXTS && at == end && strcmp(texts[0], FX_VERSION_STRING) == 0;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Each kind of refusal is reported once in a process. */
static void refuse(int *said, const char *path, const char *reason)
{
    /* A cache that cannot be used costs time only, so one message is enough. */
    if (__atomic_exchange_n(said, 1, __ATOMIC_RELAXED))
        return;
    fx_message(1, "kernel cache: %s is ignored: %s", path, reason);
}

bool fxi_kernels_cached(void)
{
    const char *off = getenv("FX_CACHE");
    return !off || strcmp(off, "off") != 0;
}

/* Opens the folder, and creates it if `make`; −1 if it cannot be used. */
static int open_folder(bool make)
{
    static int said; /* atomic */
    char where[FXI_PATH_MOST], why[FXI_PRIVATE_WHY];
    if (!fxi_kernels_cached() || !fxi_cache_folder(where, sizeof where - sizeof "/cflux"))
        return -1;
    strcat(where, "/cflux");
    const int folder = fxi_private_folder_open(where, make, why);
    if (folder < 0 && *why)
        refuse(&said, where, why);
    return folder;
}

/* Two hashes make 128 bits, so that keys practically never share a name; the file's key is compared
 * anyway. */
static void file_name(char *out, size_t size, const char *backend, const whole_key *key)
{
    snprintf(out, size, "%.40s-%016llx%016llx", backend,
             (unsigned long long)fxi_hash(key->bytes, key->size, 0),
             (unsigned long long)fxi_hash(key->bytes, key->size, 1));
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The size of the file is known before memory is allocated, so a damaged header cannot ask for too
 * much. */
static bool read_head(FILE *f, head *h)
{
    fxi_os_facts facts;
    return fread(h, sizeof *h, 1, f) == 1 && memcmp(h->mark, mark, sizeof mark) == 0 &&
           fxi_os_facts_of_stream(f, &facts) == 0 && facts.bytes >= 0 &&
           h->size <= (uint64_t)facts.bytes && h->key_size <= (uint64_t)facts.bytes &&
           (uint64_t)facts.bytes == sizeof *h + h->key_size + h->size;
}

/* Reads the key and the contents of a file into one block, which fxi_free frees. NULL if the file
 * is not whole, or if there is no memory, which sets *out_failed. A file that was cut or changed
 * must not reach the driver: sizes and hash are compared. */
static char *read_file(FILE *f, head *h, bool *out_failed)
{
    if (!read_head(f, h))
        return NULL;
    const size_t n = h->key_size + h->size;
    char *bytes = fxi_malloc(n + 1);
    *out_failed = !bytes;
    if (bytes && fread(bytes, 1, n, f) == n &&
        hash_of(bytes, h->key_size, bytes + h->key_size, h->size) == h->hash)
        return bytes;
    fxi_free(bytes);
    return NULL;
}

/* The contents of a file with this key, to be freed by fxi_free; NULL if the file is not whole or
 * has another key. */
static void *read_code(FILE *f, const whole_key *key, size_t *out_size)
{
    head h;
    bool failed; /* the program is then compiled, as if there were no file */
    char *bytes = read_file(f, &h, &failed);
    const bool same = bytes && h.key_size == key->size && memcmp(bytes, key->bytes, key->size) == 0;
    if (same) {
        memmove(bytes, bytes + h.key_size, h.size);
        *out_size = h.size;
        return bytes;
    }
    fxi_free(bytes);
    return NULL;
}

static void *load(int folder, const fx_kernel_key *k, const whole_key *key, size_t *out_size)
{
    static int said; /* atomic */
    char name[FXI_PRIVATE_NAME], why[FXI_PRIVATE_WHY];
    file_name(name, sizeof name, k->backend, key);
    FILE *f = fxi_private_file_read(folder, name, why);
    if (!f && *why)
        refuse(&said, name, why);
    void *bytes = f ? read_code(f, key, out_size) : NULL;
    if (bytes)
        /* Records the time of use: the files used longest ago are removed first. */
        fxi_private_file_used(f);
    if (f)
        fclose(f);
    return bytes;
}

void *fxi_kernel_load(const fx_kernel_key *key, size_t *out_size)
{
    const int folder = open_folder(false);
    if (folder < 0)
        return NULL;
    const whole_key whole = key_of(key);
    void *bytes = whole.bytes ? load(folder, key, &whole, out_size) : NULL;
    fxi_free(whole.bytes);
    fxi_private_folder_close(folder);
    return bytes;
}

/* ---- all files ------------------------------------------------------------------------------- */

/* The files of the folder; `files` is freed by fxi_free. */
typedef struct listing {
    fxi_private_file *files;
    int32_t n, capacity;
    bool failed; /* no memory */
} listing;

static bool add_file(const fxi_private_file *file, void *user)
{
    listing *l = user;
    if (fxi_grow(&l->files, &l->capacity, l->n + 1, sizeof *l->files))
        l->files[l->n++] = *file;
    else
        l->failed = true;
    return !l->failed;
}

static listing list_files(int folder)
{
    listing l = {.n = 0};
    fxi_private_folder_each(folder, add_file, &l);
    return l;
}

static bool visit_file(int folder, const fxi_private_file *file,
                       bool (*visit)(fxi_cached_kernel *, void *), void *user, bool *out_failed)
{
    char why[FXI_PRIVATE_WHY];
    head h;
    bool more = true;
    FILE *f = fxi_private_file_read(folder, file->name, why);
    char *bytes = f ? read_file(f, &h, out_failed) : NULL;
    fxi_cached_kernel kernel = {.memory = bytes, .used = file->used};
    if (bytes && read_key(bytes, h.key_size, &kernel.key)) {
        kernel.code = bytes + h.key_size;
        kernel.size = h.size;
        more = visit(&kernel, user);
    }
    fxi_free(kernel.memory);
    if (f)
        fclose(f);
    return more;
}

bool fxi_kernel_cache_each(bool (*visit)(fxi_cached_kernel *kernel, void *user), void *user)
{
    const int folder = open_folder(false);
    if (folder < 0)
        return true;
    listing l = list_files(folder);
    for (int32_t i = 0;
         i < l.n && !l.failed && visit_file(folder, &l.files[i], visit, user, &l.failed); i++)
        ;
    fxi_free(l.files);
    fxi_private_folder_close(folder);
    return !l.failed;
}

/* ---- the limit of the cache ------------------------------------------------------------------ */

static int latest_first(const void *a, const void *b)
{
    const int64_t x = ((const fxi_private_file *)a)->used, y = ((const fxi_private_file *)b)->used;
    return (x < y) - (x > y);
}

/* The limit in bytes; FX_CACHE may give it in MiB. */
static int64_t bytes_most(void)
{
    static bool warned; /* atomic */
    return fxi_number_variable("FX_CACHE", 0, (1 << 30) - 1, MEGABYTES_MOST, &warned) << 20;
}

/* Removes the files used longest ago until the rest is within the limit. */
static void remove_oldest(int folder)
{
    const listing l = list_files(folder);
    int64_t left = bytes_most();
    if (l.n > 0)
        qsort(l.files, (size_t)l.n, sizeof *l.files, latest_first);
    for (int32_t i = 0; i < l.n; i++)
        /* The list is sorted by the time of use, latest first. */
        if ((left -= l.files[i].bytes) < 0)
            fxi_private_file_remove(folder, l.files[i].name);
    fxi_free(l.files);
}

/* Lists the folder at the first call, and again after a 64th of the limit has been written, because
 * listing it for every file would be slow. */
static void limit_cache(int folder, size_t written)
{
    static int64_t since = INT64_MAX / 2; /* atomic */
    if (__atomic_add_fetch(&since, (int64_t)written, __ATOMIC_RELAXED) < bytes_most() / 64)
        return;
    __atomic_store_n(&since, 0, __ATOMIC_RELAXED);
    remove_oldest(folder);
}

static bool write_file(int folder, const char *name, const whole_key *key, const void *bytes,
                       size_t size)
{
    FILE *f = fxi_private_file_new(folder, name);
    if (!f)
        return false;
    head h = {
        .key_size = key->size, .size = size, .hash = hash_of(key->bytes, key->size, bytes, size)};
    memcpy(h.mark, mark, sizeof mark);
    const bool whole = fwrite(&h, sizeof h, 1, f) == 1 &&
                       fwrite(key->bytes, 1, key->size, f) == key->size &&
                       fwrite(bytes, 1, size, f) == size;
    /* & evaluates both: the file must be closed in any case, and a full disk may be reported only
     * then.
     */
    return (fclose(f) == 0) & whole;
}

static void store(int folder, const char *backend, const whole_key *key, const void *bytes,
                  size_t size)
{
    static uint32_t written; /* atomic: several threads write at the same time */
    char name[FXI_PRIVATE_NAME], fresh[FXI_PRIVATE_NAME + 32];
    file_name(name, sizeof name, backend, key);
    /* Each write has a temporary name of its own; renaming then replaces the file as a whole. */
    snprintf(fresh, sizeof fresh, "%s.%ld.%u", name, fxi_process_id(),
             __atomic_fetch_add(&written, 1, __ATOMIC_RELAXED));
    if (!write_file(folder, fresh, key, bytes, size) ||
        !fxi_private_file_rename(folder, fresh, name))
        fxi_private_file_remove(folder, fresh);
    limit_cache(folder, key->size + size);
}

void fxi_kernel_store(const fx_kernel_key *key, const void *bytes, size_t size)
{
    const int folder = open_folder(true);
    if (folder < 0)
        return;
    const whole_key whole = key_of(key);
    if (whole.bytes)
        store(folder, key->backend, &whole, bytes, size);
    fxi_free(whole.bytes);
    fxi_private_folder_close(folder);
}
