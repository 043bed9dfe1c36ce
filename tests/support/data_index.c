/* data_index.c: reads the JSON files that describe recorded test data. */
#include "data_index.h"
#include "read_back.h"
#include "temp_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* True if a value begins at this position, which is not inside a text. */
static bool begins_value(const char *text, const char *at)
{
    at -= at > text && at[-1] == '-';
    while (at > text && (at[-1] == ' ' || at[-1] == '\n'))
        at--;
    return at > text && strchr(":,[", at[-1]);
}

/* Python writes numbers that JSON does not have: infinity is replaced by a number that is too
 * large, NaN by an empty text. */
static void replace_all(char *text, const char *what, const char *by)
{
    for (char *at = text; (at = strstr(at, what)); at++)
        if (begins_value(text, at))
            memcpy(at, by, strlen(what));
}

cJSON *data_index(const char *rest)
{
    const char *path = recorded_path(rest);
    if (!path)
        return NULL;
    size_t n;
    char *text = file_bytes(path, &n);
    replace_all(text, "Infinity", "1e999   ");
    replace_all(text, "NaN", "\"\" ");
    cJSON *index = cJSON_ParseWithLength(text, n);
    free(text);
    return index;
}
