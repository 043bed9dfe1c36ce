/* plugin_file.h: finds, checks and describes the files of plugins, of every kind. Internal. */
#ifndef CFLUX_PLUGIN_FILE_H
#define CFLUX_PLUGIN_FILE_H

#include <cflux/plugin.h>

enum { FXI_PLUGIN_NAME = 64, FXI_PLUGIN_WHY = 1000 }; /* bytes of a name, of a reason */

/* The plugin to search for. */
typedef struct fxi_plugin_request {
    fx_plugin_kind kind;
    const char *name, *serves; /* as in fx_plugin_head; case is ignored */
    const uint32_t *sizes;     /* FX_PLUGIN_SIZES of them */
    const char *path;          /* the only file to try; NULL: the folders are searched */
    /* Opens a plugin with a matching head. Returns NULL on success, else why the plugin cannot be
     * used. An error that it records counts as a reason, not as an error of the program. NULL:
     * nothing to call. */
    const char *(*take)(const fx_plugin_head *plugin, void *user);
    void *user;
} fxi_plugin_request;

/* The result of a search. */
typedef enum fxi_plugin_result {
    FXI_PLUGIN_TAKEN,
    FXI_PLUGIN_ABSENT,  /* there is no file of that name */
    FXI_PLUGIN_REJECTED /* there are files, and none can be used; each was logged as a warning */
} fxi_plugin_result;

/* Tries the candidates in order: `path`, or the file with the name of the plugin in each folder of
 * fxi_plugin_folders. The first usable one is opened and stays open. Otherwise `why` names every
 * candidate with the reason. Threads may search at the same time. */
fxi_plugin_result fxi_plugin_find(const fxi_plugin_request *request,
                                  const fx_plugin_head **out_plugin, char *why, size_t size);

/* The folder that plugins are installed in. Test programs replace it. */
extern const char *fxi_installed_plugins;

/* Calls visit for each folder that plugins are searched in, until it returns true: the folders of
 * FX_PLUGIN_PATH (separated by FXI_LIST_SEPARATOR; ignored in programs with raised privileges), the
 * folder of the library or of the program that it is linked into, its subfolder `cflux`, and the
 * folder that plugins are installed in. Returns true if a visit did. */
bool fxi_plugin_folders(bool (*visit)(const char *folder, void *user), void *user);

/* The parts of a plugin's file name. */
typedef struct fxi_plugin_name {
    fx_plugin_kind kind;
    char name[FXI_PLUGIN_NAME], serves[FXI_PLUGIN_NAME]; /* serves: "" in libcflux-NAME.so */
} fxi_plugin_name;
/* Parses the name of a file, with or without folders before it. False if it is not the name of a
 * plugin. */
bool fxi_plugin_name_of(const char *file, fxi_plugin_name *out);
/* Calls visit for every file in these folders with the name of a plugin; opens none. */
void fxi_plugin_each(void (*visit)(const char *path, const fxi_plugin_name *name, void *user),
                     void *user);

/* "backend", "kernel library", "transport"; "plugin" for anything else. */
const char *fxi_plugin_kind_text(uint32_t kind);

/* Stores for fx_plugins whether a file is used. `why`: the reason why not; "" if it is used.
 * `plugin`: its head; NULL if it has no readable one. */
void fxi_plugin_note(const char *path, const fx_plugin_head *plugin, const char *why);

#endif
