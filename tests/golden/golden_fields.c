/* golden_fields.c: reads the fields of a case's JSON, and finds those that were never read.
 *
 * A field that is not read might change the recorded numbers (a padding mode, a weight decay), so a
 * case with one is not understood, and fails. Reading a field as another kind of value than it
 * holds does not count: a list where a number is expected is not understood either. The mark is a
 * bit of the item's type that cJSON does not use.
 */
#include "golden.h"

#include <string.h>

enum { READ = 1 << 20 };

static cJSON *find(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const cJSON *mark(cJSON *item, bool understood)
{
    if (item && understood)
        item->type |= READ;
    return understood ? item : NULL;
}

bool gold_has(const cJSON *object, const char *name)
{
    return find(object, name) != NULL;
}

const cJSON *gold_any(const cJSON *object, const char *name)
{
    return mark(find(object, name), true);
}

const cJSON *gold_list(const cJSON *object, const char *name)
{
    cJSON *item = find(object, name);
    return mark(item, cJSON_IsArray(item));
}

double gold_number(const cJSON *object, const char *name, double otherwise)
{
    cJSON *item = find(object, name);
    return mark(item, cJSON_IsNumber(item)) ? item->valuedouble : otherwise;
}

bool gold_flag(const cJSON *object, const char *name)
{
    cJSON *item = find(object, name);
    mark(item, cJSON_IsBool(item));
    return cJSON_IsTrue(item);
}

const char *gold_text(const cJSON *object, const char *name, const char *otherwise)
{
    cJSON *item = find(object, name);
    return mark(item, cJSON_IsString(item)) ? item->valuestring : otherwise;
}

void gold_unread(const cJSON *object)
{
    cJSON *item;
    cJSON_ArrayForEach(item, object) item->type &= ~READ;
}

void gold_check_read(gold_case *c, const cJSON *object, const char *what)
{
    cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        if (item->type & READ)
            continue;
        const int type = item->type;
        char value[80] = "";
        if (!cJSON_PrintPreallocated(item, value, (int)sizeof value - 8, 0))
            strcpy(value, "…");
        item->type = type;
        gold_fail(c, "%s: field %s = %s is not understood", what, item->string, value);
    }
}
