/* cache_folder_darwin.c: where users of macOS expect caches; see private_folder.h. */
#include "posix.h"

const char *const fxi_posix_caches = "/Library/Caches";
