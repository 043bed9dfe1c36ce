/* check_arguments.c: detects names and objects that a caller passed in the wrong order.
 *
 * Functions with a variable number of arguments take names and objects as void pointers, so a
 * compiler cannot tell them apart. At run time every object is recognised by its header.
 */
#include "check_arguments.h"
#include "handle.h"

#include <cflux/tree.h>

fx_status fxi_check_text(const char *op, int argument, const char *expected, const void *text)
{
    char is[160];
    if (!fxi_handle_is_object(text))
        return FX_OK;
    fx_summary((void *)(uintptr_t)text, is, sizeof is);
    return fx_fail(FX_STATUS_ARGUMENT, op, "argument %d is an object, %s; expected %s", argument,
                   is, expected);
}

static fx_status check_object(const char *op, int argument, const void *object)
{
    if (!object || fxi_handle_is_object(object))
        return FX_OK;
    return fx_fail(FX_STATUS_ARGUMENT, op, "argument %d is not an object of this library",
                   argument);
}

fx_status fxi_check_objects(const char *op, int before, int n, const void *const *objects)
{
    fx_status status = FX_OK;
    for (int i = 0; i < n && status == FX_OK; i++)
        status = check_object(op, before + i + 1, objects[i]);
    return status;
}

fx_status fxi_check_pairs(const char *op, int before, int n, const void *const *names_and_objects)
{
    fx_status status = FX_OK;
    for (int i = 0; i < n && status == FX_OK; i++)
        status = i % 2 ? check_object(op, before + i + 1, names_and_objects[i])
                       : fxi_check_text(op, before + i + 1,
                                        "a name, because names and objects alternate",
                                        names_and_objects[i]);
    return status;
}
