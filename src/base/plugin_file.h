/* plugin_file.h: where shared objects that are opened at run time are looked for. Internal. */
#ifndef CFLUX_PLUGIN_FILE_H
#define CFLUX_PLUGIN_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Calls visit for each folder where plugins may lie, until it says true: those of the environment
 * variable `variable` (separated by colons; ignored in programs with raised privileges), beside the
 * library or the program it is linked into, in a folder cflux there, and where plugins were to be
 * installed. True when a visit did. */
bool fxi_plugin_folders(const char *variable, bool (*visit)(const char *folder, void *user),
                        void *user);

/* Opens a shared object for good and gives the symbol; NULL with the reason in *why. */
const void *fxi_plugin_open(const char *path, const char *symbol, const char **why);

#endif
