/* gpu_cache.c: reads, writes and removes the files of compiled kernels; gpu_cache.h describes them.
 */
#include "gpu_cache.h"
#include "files.h"
#include "private_folder.h"
#include "this_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEGABYTES_MOST = 512, FILES_MOST = 4096 };

typedef struct head {
    char mark[8];
    uint64_t key_size, size, hash; /* bytes of the key; bytes and hash of the contents */
} head;

/* The number is the version of the file's form: files of another version are ignored. */
static const char mark[8] = "cflux 1";

/* FNV-1a, followed by a mix of its bits. It need not resist attacks: only the user can write to the
 * folder (private_folder.h). */
uint64_t fxi_gpu_hash(const void *bytes, size_t size, uint64_t seed)
{
    const uint8_t *b = bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < size; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Each kind of refusal is reported once in a process. */
static void refuse(const fx_host *host, int *said, const char *path, const char *reason)
{
    char text[FXI_PATH_MOST + 256];
    /* A cache that cannot be used costs time only, so one message is enough. */
    if (__atomic_exchange_n(said, 1, __ATOMIC_RELAXED))
        return;
    snprintf(text, sizeof text, "kernel cache: %s is ignored: %s", path, reason);
    host->message(1, text);
}

bool fxi_gpu_cache_on(void)
{
    const char *off = getenv("FX_CACHE");
    return !off || strcmp(off, "off") != 0;
}

/* Opens the folder, and creates it if `make`; −1 if it cannot be used. */
static int open_folder(const fx_host *host, bool make)
{
    static int said; /* atomic */
    char where[FXI_PATH_MOST], why[FXI_PRIVATE_WHY];
    if (!fxi_gpu_cache_on() || !fxi_cache_folder(where, sizeof where - sizeof "/cflux"))
        return -1;
    strcat(where, "/cflux");
    const int folder = fxi_private_folder_open(where, make, why);
    if (folder < 0 && *why)
        refuse(host, &said, where, why);
    return folder;
}

/* Two hashes make 128 bits, so that keys practically never share a name; the file's key is compared
 * anyway. */
static void file_name(char *out, size_t size, const char *kind, const char *key)
{
    const size_t n = strlen(key);
    snprintf(out, size, "%.40s-%016llx%016llx", kind, (unsigned long long)fxi_gpu_hash(key, n, 0),
             (unsigned long long)fxi_gpu_hash(key, n, 1));
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Are the next `size` bytes of the file equal to the key? */
static bool same_key(FILE *f, const char *key, size_t size)
{
    char piece[512];
    for (size_t done = 0, n; done < size; done += n) {
        n = size - done < sizeof piece ? size - done : sizeof piece;
        if (fread(piece, 1, n, f) != n || memcmp(piece, key + done, n) != 0)
            return false;
    }
    return true;
}

/* A file that was cut or changed must not reach the driver: sizes, key and hash are all
 * compared. */
static void *read_file(const fx_host *host, FILE *f, const char *key, size_t *out_size)
{
    head h;
    fxi_os_facts facts;
    const size_t n = strlen(key);
    /* The size of the file is known before memory is allocated: a damaged header cannot ask for too
     * much. */
    if (fread(&h, sizeof h, 1, f) != 1 || memcmp(h.mark, mark, sizeof mark) != 0 ||
        h.key_size != n || fxi_os_facts_of_stream(f, &facts) != 0 || facts.bytes < 0 ||
        h.size > (uint64_t)facts.bytes || (uint64_t)facts.bytes != sizeof h + n + h.size ||
        !same_key(f, key, n))
        return NULL;
    void *bytes = host->alloc(h.size);
    if (bytes && fread(bytes, 1, h.size, f) == h.size && fxi_gpu_hash(bytes, h.size, 0) == h.hash) {
        *out_size = h.size;
        return bytes;
    }
    host->free(bytes);
    return NULL;
}

void *fxi_gpu_cache_load(const fx_host *host, const char *kind, const char *key, size_t *out_size)
{
    static int said; /* atomic */
    char name[FXI_PRIVATE_NAME], why[FXI_PRIVATE_WHY];
    const int folder = open_folder(host, false);
    if (folder < 0)
        return NULL;
    file_name(name, sizeof name, kind, key);
    FILE *f = fxi_private_file_read(folder, name, why);
    if (!f && *why)
        refuse(host, &said, name, why);
    void *bytes = f ? read_file(host, f, key, out_size) : NULL;
    if (bytes)
        /* Notes the time, by which files are removed. */
        fxi_private_file_used(f);
    if (f)
        fclose(f);
    fxi_private_folder_close(folder);
    return bytes;
}

/* ---- the limit of the cache ------------------------------------------------------------------ */

static int latest_first(const void *a, const void *b)
{
    const int64_t x = ((const fxi_private_file *)a)->used, y = ((const fxi_private_file *)b)->used;
    return (x < y) - (x > y);
}

/* The limit in bytes; FX_CACHE may give it in megabytes. */
static int64_t bytes_most(void)
{
    const char *text = getenv("FX_CACHE");
    char *end = NULL;
    const unsigned long long n = text ? strtoull(text, &end, 10) : 0;
    const bool number = text && end != text && *end == '\0' && n < 1u << 30;
    return (int64_t)(number ? n : MEGABYTES_MOST) << 20;
}

/* Removes the files used longest ago until the rest is within the limit. If there are more than
 * FILES_MOST, some stay until the next time. */
static void remove_oldest(const fx_host *host, int folder)
{
    fxi_private_file *files = host->alloc(FILES_MOST * sizeof *files);
    const int n = files ? fxi_private_folder_list(folder, files, FILES_MOST) : 0;
    int64_t left = bytes_most();
    if (n > 0)
        qsort(files, (size_t)n, sizeof *files, latest_first);
    for (int i = 0; i < n; i++)
        /* The list is sorted by the time of use, latest first. */
        if ((left -= files[i].bytes) < 0)
            fxi_private_file_remove(folder, files[i].name);
    host->free(files);
}

/* Lists the folder at the first call, and again after a 64th of the limit has been written, so that
 * not every file costs a listing. */
static void limit_cache(const fx_host *host, int folder, size_t written)
{
    static int64_t since = INT64_MAX / 2; /* atomic */
    if (__atomic_add_fetch(&since, (int64_t)written, __ATOMIC_RELAXED) < bytes_most() / 64)
        return;
    __atomic_store_n(&since, 0, __ATOMIC_RELAXED);
    remove_oldest(host, folder);
}

static bool write_file(int folder, const char *name, const char *key, const void *bytes,
                       size_t size)
{
    const size_t n = strlen(key);
    FILE *f = fxi_private_file_new(folder, name);
    if (!f)
        return false;
    head h = {.key_size = n, .size = size, .hash = fxi_gpu_hash(bytes, size, 0)};
    memcpy(h.mark, mark, sizeof mark);
    const bool whole = fwrite(&h, sizeof h, 1, f) == 1 && fwrite(key, 1, n, f) == n &&
                       fwrite(bytes, 1, size, f) == size;
    /* Both are evaluated: the file must be closed in any case, and a full disk may show only then.
     */
    return (fclose(f) == 0) & whole;
}

void fxi_gpu_cache_store(const fx_host *host, const char *kind, const char *key, const void *bytes,
                         size_t size)
{
    static uint32_t written; /* atomic: several threads write at the same time */
    char name[FXI_PRIVATE_NAME], fresh[FXI_PRIVATE_NAME + 32];
    const int folder = open_folder(host, true);
    if (folder < 0)
        return;
    file_name(name, sizeof name, kind, key);
    /* A name of its own for each process and thread; renaming then replaces the file as a whole. */
    snprintf(fresh, sizeof fresh, "%s.%ld.%u", name, fxi_process_id(),
             __atomic_fetch_add(&written, 1, __ATOMIC_RELAXED));
    if (!write_file(folder, fresh, key, bytes, size) ||
        !fxi_private_file_rename(folder, fresh, name))
        fxi_private_file_remove(folder, fresh);
    limit_cache(host, folder, strlen(key) + size);
    fxi_private_folder_close(folder);
}
