/* wide_path.h: conversions for the Windows files of this folder. The library's texts are UTF-8, and
 * only those functions of Windows that take UTF-16 accept every path. Internal to src/platform. */
#ifndef CFLUX_WIDE_PATH_H
#define CFLUX_WIDE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

enum { FXI_WIDE_PATH = 4096 };

/* The path in UTF-16; false, with errno, if it is not UTF-8 or too long. */
bool fxi_wide_path(const char *path, wchar_t out[FXI_WIDE_PATH]);
/* The text in UTF-8, with '/' instead of '\'. False if it does not fit. */
bool fxi_narrow_path(const wchar_t *path, char *out, size_t size);
/* Sets errno for the latest failure of a function of Windows; returns −1. */
int fxi_windows_failed(void);

#endif
