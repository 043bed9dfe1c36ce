/* gpu_cache.c: see gpu_cache.h. */
#include "gpu_cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MOST = 4096 };

typedef struct head {
    char mark[8];
    uint64_t key_size, size, hash; /* of the key, of what is kept */
} head;

static const char mark[8] = "cflux 1";

/* FNV-1a, and its bits mixed once more at the end. */
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

/* ---- names ----------------------------------------------------------------------------------- */

/* The folder's name, made when `make` says so; false: there is to be no cache. */
static bool folder(char *out, size_t size, bool make)
{
    const char *off = getenv("FX_CACHE"), *base = secure_getenv("XDG_CACHE_HOME");
    const char *below = "";
    if (off && strcmp(off, "off") == 0)
        return false;
    if (!base || *base != '/') {
        base = secure_getenv("HOME");
        below = "/.cache";
    }
    if (!base || *base != '/')
        return false;
    const int n = snprintf(out, size, "%s%s/cflux", base, below);
    if (n < 0 || (size_t)n >= size)
        return false;
    for (char *c = out + 1; make && (c = strchr(c, '/')) != NULL; *c++ = '/') {
        *c = '\0';
        mkdir(out, 0700);
    }
    return !make || mkdir(out, 0700) == 0 || errno == EEXIST;
}

static bool file_name(char *out, const char *kind, const char *key, bool make)
{
    char where[PATH_MOST - 128];
    const size_t n = strlen(key);
    if (!folder(where, sizeof where, make))
        return false;
    snprintf(out, PATH_MOST, "%s/%.40s-%016llx%016llx", where, kind,
             (unsigned long long)fxi_gpu_hash(key, n, 0),
             (unsigned long long)fxi_gpu_hash(key, n, 1));
    return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Are the next `size` bytes of the file those of the key? */
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

static void *read_file(const fx_host *host, FILE *f, const char *key, size_t *out_size)
{
    head h;
    struct stat st;
    const size_t n = strlen(key);
    if (fread(&h, sizeof h, 1, f) != 1 || memcmp(h.mark, mark, sizeof mark) != 0 ||
        h.key_size != n || fstat(fileno(f), &st) != 0 || st.st_size < 0 ||
        h.size > (uint64_t)st.st_size || (uint64_t)st.st_size != sizeof h + n + h.size ||
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
    char path[PATH_MOST];
    FILE *f = file_name(path, kind, key, false) ? fopen(path, "rbe") : NULL;
    void *bytes = f ? read_file(host, f, key, out_size) : NULL;
    if (f)
        fclose(f);
    return bytes;
}

void fxi_gpu_cache_store(const char *kind, const char *key, const void *bytes, size_t size)
{
    static uint32_t written; /* atomic: several threads write at the same time */
    char path[PATH_MOST], fresh[PATH_MOST + 32];
    const size_t n = strlen(key);
    if (!file_name(path, kind, key, true))
        return;
    snprintf(fresh, sizeof fresh, "%s.%ld.%u", path, (long)getpid(),
             __atomic_fetch_add(&written, 1, __ATOMIC_RELAXED));
    FILE *f = fopen(fresh, "wbex");
    if (!f)
        return;
    head h = {.key_size = n, .size = size, .hash = fxi_gpu_hash(bytes, size, 0)};
    memcpy(h.mark, mark, sizeof mark);
    const bool whole = fwrite(&h, sizeof h, 1, f) == 1 && fwrite(key, 1, n, f) == n &&
                       fwrite(bytes, 1, size, f) == size;
    if (fclose(f) != 0 || !whole || rename(fresh, path) != 0)
        unlink(fresh);
}
