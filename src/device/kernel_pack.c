/* kernel_pack.c: reads a pack of compiled kernels and checks it; kernel_pack.h describes the file.
 */
#include "kernel_pack.h"
#include "file_out.h"
#include "files.h"
#include "hash.h"
#include "memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char fxi_pack_mark[8] = {'c', 'f', 'l', 'u', 'x', 'k', 'r', 'n'};

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--)
        n = n << 8 | at[i];
    return n;
}

uint32_t fxi_pack_u32(const unsigned char *at)
{
    return (uint32_t)number(at, 4);
}

uint64_t fxi_pack_u64(const unsigned char *at)
{
    return number(at, 8);
}

void fxi_pack_put(unsigned char *at, uint64_t n, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(n >> 8 * i);
}

uint64_t fxi_pack_hash(const unsigned char *bytes, size_t size)
{
    return fxi_hash(bytes + FXI_PACK_HEADER, size - FXI_PACK_HEADER,
                    fxi_hash(bytes, FXI_PACK_AT_HASH, 0));
}

/* The key is two hashes, with different starts, of the backend, the options and the source, one
 * after the other. Each text is hashed with its final zero byte, so that "ab", "c" and "a", "bc"
 * have different keys. */
void fxi_pack_key(const fx_kernel_key *key, uint64_t out[2])
{
    const char *const texts[] = {key->backend, key->options, key->source};
    for (uint64_t k = 0; k < 2; k++) {
        out[k] = k;
        for (int i = 0; i < 3; i++)
            out[k] = fxi_hash(texts[i], strlen(texts[i]) + 1, out[k]);
    }
}

/* ---- entries --------------------------------------------------------------------------------- */

fxi_packed fxi_pack_entry(const fxi_pack *pack, uint32_t k)
{
    const unsigned char *e = pack->bytes + FXI_PACK_HEADER + (size_t)k * FXI_PACK_ENTRY;
    const char *texts[3];
    for (int i = 0; i < 3; i++)
        texts[i] = (const char *)pack->bytes + fxi_pack_u32(e + FXI_PACK_AT_NAMES + 4 * i);
    return (fxi_packed){.key = {fxi_pack_u64(e), fxi_pack_u64(e + 8)},
                        .backend = texts[0],
                        .target = texts[1],
                        .compiler = texts[2],
                        .code = pack->bytes + fxi_pack_u64(e + FXI_PACK_AT_CODE),
                        .size = (size_t)fxi_pack_u64(e + FXI_PACK_AT_SIZE)};
}

/* Is each offset of the entry within its part of the file, and is the code followed by a zero byte?
 * In memory, zero bytes follow the file. */
static bool is_entry(const fxi_pack *p, uint32_t k, uint64_t texts, uint64_t codes)
{
    const unsigned char *e = p->bytes + FXI_PACK_HEADER + (size_t)k * FXI_PACK_ENTRY;
    const uint64_t code = fxi_pack_u64(e + FXI_PACK_AT_CODE),
                   size = fxi_pack_u64(e + FXI_PACK_AT_SIZE);
    for (int i = 0; i < 3; i++) {
        const uint32_t at = fxi_pack_u32(e + FXI_PACK_AT_NAMES + 4 * i);
        if (at < texts || at >= codes)
            return false;
    }
    return code >= codes && code % 16 == 0 && code <= p->size && size > 0 &&
           size <= p->size - code && p->bytes[code + size] == 0;
}

/* Searches are binary, so the list must be sorted. */
static bool is_sorted(const fxi_pack *p, uint32_t k)
{
    const fxi_packed a = fxi_pack_entry(p, k - 1), b = fxi_pack_entry(p, k);
    return a.key[0] < b.key[0] || (a.key[0] == b.key[0] && a.key[1] <= b.key[1]);
}

/* The bytes are those of a file whose header is right. Returns 0, or the number of the first wrong
 * entry, from 1. */
static uint32_t find_wrong_entry(const fxi_pack *p)
{
    const uint64_t texts = FXI_PACK_HEADER + (uint64_t)p->count * FXI_PACK_ENTRY,
                   codes = texts + fxi_pack_u64(p->bytes + FXI_PACK_AT_TEXTS);
    for (uint32_t k = 0; k < p->count; k++)
        if (!is_entry(p, k, texts, codes) || (k > 0 && !is_sorted(p, k)))
            return k + 1;
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Checks everything that the header states about a file of `size` bytes. */
static fx_status check_header(const unsigned char *h, uint64_t size, char why[FXI_PACK_WHY])
{
    const uint64_t says = fxi_pack_u64(h + FXI_PACK_AT_BYTES),
                   texts = fxi_pack_u64(h + FXI_PACK_AT_TEXTS),
                   entries = fxi_pack_u32(h + FXI_PACK_AT_COUNT);
    const uint64_t index = FXI_PACK_HEADER + entries * FXI_PACK_ENTRY;
    const char *version = (const char *)h + FXI_PACK_AT_VERSION;
    const uint32_t form = fxi_pack_u32(h + FXI_PACK_AT_FORM);
    if (memcmp(h, fxi_pack_mark, sizeof fxi_pack_mark) != 0)
        snprintf(why, FXI_PACK_WHY, "it is not a pack of kernels");
    else if (form != FXI_PACK_FORM)
        snprintf(why, FXI_PACK_WHY,
                 "its format is %u, but this cflux reads format %d; pack the kernels with this "
                 "version",
                 (unsigned)form, (int)FXI_PACK_FORM);
    else if (size != says)
        snprintf(why, FXI_PACK_WHY,
                 "it has %llu bytes instead of %llu: the file is incomplete or damaged",
                 (unsigned long long)size, (unsigned long long)says);
    /* `texts` is compared before it is added, so that no sum overflows. */
    else if (texts > size || index > size - texts || (entries > 0 && texts == 0) ||
             !memchr(version, 0, FXI_PACK_VERSION))
        snprintf(why, FXI_PACK_WHY, "its header is damaged");
    else
        return FX_OK;
    return FX_STATUS_FORMAT;
}

/* Checks the whole file, whose header is right. */
static fx_status check_file(const fxi_pack *p, char why[FXI_PACK_WHY])
{
    const char *version = (const char *)p->bytes + FXI_PACK_AT_VERSION;
    const uint64_t codes = FXI_PACK_HEADER + (uint64_t)p->count * FXI_PACK_ENTRY +
                           fxi_pack_u64(p->bytes + FXI_PACK_AT_TEXTS);
    uint32_t wrong = 0;
    if (fxi_pack_hash(p->bytes, p->size) != fxi_pack_u64(p->bytes + FXI_PACK_AT_HASH))
        snprintf(why, FXI_PACK_WHY, "it is damaged: its checksum does not match");
    else if (strcmp(version, FX_VERSION_STRING) != 0)
        snprintf(why, FXI_PACK_WHY,
                 "cflux %s packed it, and this is cflux %s; pack the kernels with this version",
                 version, FX_VERSION_STRING);
    /* With a zero byte after them, all texts end inside of the file. */
    else if (p->count > 0 && p->bytes[codes - 1] != 0)
        snprintf(why, FXI_PACK_WHY, "it is damaged: a text has no end");
    else if ((wrong = find_wrong_entry(p)) != 0)
        snprintf(why, FXI_PACK_WHY, "it is damaged: entry %u of %u is invalid", (unsigned)wrong,
                 (unsigned)p->count);
    else
        return FX_OK;
    return FX_STATUS_FORMAT;
}

/* Reads exactly n bytes. */
static bool read_all(int fd, unsigned char *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        const int64_t got = fxi_file_read(fd, to + done, n - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? EIO : errno; /* the file became shorter */
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

static fx_status unreadable(const char *what, char why[FXI_PACK_WHY])
{
    snprintf(why, FXI_PACK_WHY, "it cannot be %s: %s", what, strerror(errno));
    return errno == ENOMEM ? FX_STATUS_MEMORY : FX_STATUS_IO;
}

/* The header is checked before memory for the rest is allocated. */
static fx_status read_file(int fd, fxi_pack *p, char why[FXI_PACK_WHY])
{
    enum { PADDING = 16 };
    unsigned char header[FXI_PACK_HEADER];
    fxi_os_facts facts;
    if (fxi_os_facts_of(fd, &facts) != 0)
        return unreadable("read", why);
    if (!facts.regular || facts.bytes < FXI_PACK_HEADER) {
        snprintf(why, FXI_PACK_WHY, "it is not a pack of kernels");
        return FX_STATUS_FORMAT;
    }
    if (!read_all(fd, header, sizeof header))
        return unreadable("read", why);
    const fx_status status = check_header(header, (uint64_t)facts.bytes, why);
    if (status)
        return status;
    p->size = (size_t)facts.bytes;
    p->count = fxi_pack_u32(header + FXI_PACK_AT_COUNT);
    p->bytes = fxi_calloc(1, p->size + PADDING);
    if (!p->bytes) {
        snprintf(why, FXI_PACK_WHY, "no memory for its %lld bytes", (long long)facts.bytes);
        return FX_STATUS_MEMORY;
    }
    memcpy(p->bytes, header, sizeof header);
    if (!read_all(fd, p->bytes + sizeof header, p->size - sizeof header))
        return unreadable("read", why);
    return check_file(p, why);
}

fx_status fxi_pack_read(const char *path, fxi_pack *out, char why[FXI_PACK_WHY])
{
    *out = (fxi_pack){.count = 0};
    const int fd = fxi_file_open(path, FXI_OS_READ);
    if (fd < 0)
        return unreadable("opened", why);
    const fx_status status = read_file(fd, out, why);
    fxi_os_close(fd);
    if (status) {
        fxi_free(out->bytes);
        out->bytes = NULL;
    }
    return status;
}
