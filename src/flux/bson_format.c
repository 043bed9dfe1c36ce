/* bson_format.c: registers BSON, Flux's own format, as a file format. */
#include "bson_objects.h"
#include "bson_version.h"
#include "bson_write.h"
#include "formats.h"

/* Detects BSON: a document begins with its length and ends with a zero byte. */
static bool sniff(const fxi_bytes *file)
{
    fxi_bytes start = *file;
    return file->size >= 5 && fxi_bytes_number(&start, 4, "length") == file->size &&
           file->data[file->size - 1] == 0;
}

const fxi_format fxi_format_bson = {.name = "BSON",
                                    .extension = ".bson",
                                    .sniff = sniff,
                                    .load = fxi_bson_load,
                                    .save = fxi_bson_save,
                                    .about = fxi_bson_about};
