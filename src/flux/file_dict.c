/* file_dict.c: a dictionary read from a Julia file: see file_dict.h. */
#include "file_dict.h"

static const fx_field dict_fields[] = {
    {"items", offsetof(fxi_dict_object, items), FX_FIELD_LIST, false}};
static fxi_dict_object dict_error;
static const fx_type dict_type = {.fxi_size = sizeof(fx_type),
                                  .name = "Dict",
                                  .size = sizeof(fxi_dict_object),
                                  .fields = dict_fields,
                                  .nfields = 1,
                                  .error = &dict_error,
                                  .flags = FX_TYPE_TUPLE};

void *fxi_file_dict(const fxi_dict_object *init)
{
    return fxi_new(&dict_type, init);
}

const fxi_dict_object *fxi_file_dict_of(const void *object)
{
    return object && fx_type_of(object) == &dict_type && !fx_is_error(object) ? object : NULL;
}
