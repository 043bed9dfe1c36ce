/* kernel_pack.h: packs of compiled kernels: one file that lets a program run without a compiler.
 * Internal.
 *
 * A pack is made from the cache on disk (kernel_cache.h) and only read afterwards. All numbers are
 * little endian:
 *
 *     header, 64 bytes   mark[8] "cfluxkrn", u32 form, u32 entries, u64 bytes of the file,
 *                        u64 bytes of the texts, version[24] of cflux, u64 hash of all other bytes
 *     entries, 48 each   u64 key[2], u64 offset and u64 bytes of the code, u32 offsets of three
 *                        texts (backend, target, compiler), u32 0; sorted by key
 *     texts              each ends with a zero byte
 *     codes              each begins at a multiple of 16, with at least one zero byte before the
 *                        next
 *
 * A key is two hashes of backend, options and source text. A pack may be damaged or made by anyone:
 * the reader checks every number before it uses it, and the hash of the whole file. That does not
 * make the code harmless: a device runs it. Packs are never unloaded.
 */
#ifndef CFLUX_KERNEL_PACK_H
#define CFLUX_KERNEL_PACK_H

#include <cflux/backend.h>

enum { FXI_PACK_FORM = 1, FXI_PACK_HEADER = 64, FXI_PACK_ENTRY = 48, FXI_PACK_VERSION = 24 };
/* Offsets in the header and in an entry. */
enum {
    FXI_PACK_AT_FORM = 8,
    FXI_PACK_AT_COUNT = 12,
    FXI_PACK_AT_BYTES = 16,
    FXI_PACK_AT_TEXTS = 24,
    FXI_PACK_AT_VERSION = 32,
    FXI_PACK_AT_HASH = 56,
    FXI_PACK_AT_CODE = 16,
    FXI_PACK_AT_SIZE = 24,
    FXI_PACK_AT_NAMES = 32
};
extern const char fxi_pack_mark[8];

typedef struct fxi_pack {
    struct fxi_pack *next;
    unsigned char *bytes; /* the whole file, and zero bytes after it */
    size_t size;
    uint32_t count;
} fxi_pack;

typedef struct fxi_packed {
    uint64_t key[2];
    const char *backend, *target, *compiler;
    const void *code;
    size_t size;
} fxi_packed;

/* Reads and checks a file. On failure returns the status, with a sentence about the file in `why`.
 * The pack's bytes are freed by fxi_free. */
enum { FXI_PACK_WHY = 320 };
fx_status fxi_pack_read(const char *path, fxi_pack *out, char why[FXI_PACK_WHY]);
fxi_packed fxi_pack_entry(const fxi_pack *pack, uint32_t k);
void fxi_pack_key(const fx_kernel_key *key, uint64_t out[2]); /* key->source is not NULL */
/* The hash in the header of a file with these bytes. */
uint64_t fxi_pack_hash(const unsigned char *bytes, size_t size);

uint32_t fxi_pack_u32(const unsigned char *at);
uint64_t fxi_pack_u64(const unsigned char *at);
void fxi_pack_put(unsigned char *at, uint64_t number, int bytes);

/* Reads the files of CFLUX_KERNELS, separated as in FX_PLUGIN_PATH, at the first call. A file that
 * cannot be used is ignored, with a warning. */
void fxi_kernel_packs_from_environment(void);
/* fx_host.kernel_packed */
bool fxi_kernel_packed(const fx_kernel_key *key, fx_packed_fn take, void *user);

#endif
