/* cache_folder_linux.c: where users of Linux expect caches; see private_folder.h. */
#include "posix.h"

const char *const fxi_posix_caches = "/.cache";
