/* plugin_record.h: the state of every plugin file, for fx_plugins. Internal. */
#ifndef CFLUX_PLUGIN_RECORD_H
#define CFLUX_PLUGIN_RECORD_H

#include "plugin_file.h"

typedef struct fxi_plugin_record {
    struct fxi_plugin_record *next;
    fxi_plugin_name name;         /* from the file's name */
    const fx_plugin_head *plugin; /* NULL: not opened, or without a readable head */
    bool opened;
    char why[256]; /* why it is not used; "" if it is used or was not opened */
    int seen;      /* number of the latest call of fxi_plugin_records that found the file */
    const char *path;
} fxi_plugin_record;

/* Calls visit for a copy of the record of every file that was opened or rejected, and of every
 * other file in the folders of plugins, which is not opened. */
void fxi_plugin_records(void (*visit)(const fxi_plugin_record *record, void *user), void *user);

#endif
