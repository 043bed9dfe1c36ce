/* huge_pages.h: decides which new memory asks for huge pages. Internal.
 *
 * The first access to a new page makes the system clear it. Usually a huge page (2 MiB) takes a
 * sixth of the time of its 512 small pages. But it can also take five times as long: the system
 * must first move other pages together, or the machine is virtual and its host must find the
 * memory. This can change at any time. So each piece of 16 MiB tries one huge page and measures it.
 * After a slow one, the next 64 MiB use small pages, then 128 MiB, and so on up to 1 GiB, until a
 * trial is fast again. */
#ifndef CFLUX_HUGE_PAGES_H
#define CFLUX_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Threads may change these numbers at the same time; then a trial is only earlier or later. */
typedef struct fxi_huge_pages {
    int64_t left;  /* bytes that get small pages before the next trial */
    int64_t pause; /* bytes without a trial after a slow one; 0: the latest trial was fast */
} fxi_huge_pages;

/* The two requests to the system (fxi_system_huge_pages and fxi_system_try_huge_page); tests pass
 * others. */
typedef struct fxi_huge_pages_calls {
    void (*request)(void *at, size_t bytes);
    int64_t (*try_one)(void *at);
} fxi_huge_pages_calls;

/* Requests huge pages for new memory at `at`, which is aligned to 2 MiB; `bytes` is a multiple of
 * 2 MiB. Changes the contents of the memory. */
void fxi_huge_pages_request(fxi_huge_pages *state, const fxi_huge_pages_calls *calls, void *at,
                            size_t bytes);

#endif
