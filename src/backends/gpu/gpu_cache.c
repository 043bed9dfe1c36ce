/* gpu_cache.c: see gpu_cache.h. */
#include "gpu_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MOST = 4096, MEGABYTES_MOST = 512, FILES_MOST = 4096 };

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
    if (bytes)
        futimens(fileno(f), NULL); /* the time of last use, by which room is made */
    if (f)
        fclose(f);
    return bytes;
}

/* ---- a bound on all of it -------------------------------------------------------------------- */

typedef struct kept {
    char name[128];
    int64_t size;
    struct timespec used;
} kept;

static int latest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? 1 : -1;
    return (x->tv_nsec < y->tv_nsec) - (x->tv_nsec > y->tv_nsec);
}

/* The files there are, FILES_MOST at most: those beyond wait for the next time. */
static int list_files(DIR *dir, kept *out)
{
    int n = 0;
    struct stat st;
    for (struct dirent *e; n < FILES_MOST && (e = readdir(dir)) != NULL;) {
        kept *k = &out[n];
        if (strlen(e->d_name) >= sizeof k->name ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        strcpy(k->name, e->d_name);
        k->size = st.st_size;
        k->used = st.st_mtim;
        n++;
    }
    return n;
}

/* FX_CACHE may be a number of megabytes. */
static int64_t bytes_most(void)
{
    const char *text = getenv("FX_CACHE");
    char *end = NULL;
    const unsigned long long n = text ? strtoull(text, &end, 10) : 0;
    const bool number = text && end != text && *end == '\0' && n < 1u << 30;
    return (int64_t)(number ? n : MEGABYTES_MOST) << 20;
}

/* Files used longest ago are removed until the rest is within the bound. */
static void make_room(const fx_host *host)
{
    char where[PATH_MOST - 128];
    DIR *dir = folder(where, sizeof where, false) ? opendir(where) : NULL;
    kept *files = dir ? host->alloc(FILES_MOST * sizeof *files) : NULL;
    const int n = files ? list_files(dir, files) : 0;
    int64_t left = bytes_most();
    if (n > 0)
        qsort(files, (size_t)n, sizeof *files, latest_first);
    for (int i = 0; i < n; i++)
        if ((left -= files[i].size) < 0)
            unlinkat(dirfd(dir), files[i].name, 0);
    host->free(files);
    if (dir)
        closedir(dir);
}

void fxi_gpu_cache_store(const fx_host *host, const char *kind, const char *key, const void *bytes,
                         size_t size)
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
    make_room(host);
}
