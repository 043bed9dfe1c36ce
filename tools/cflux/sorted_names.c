/* sorted_names.c: finds one of very many names: see sorted_names.h. */
#include "sorted_names.h"
#include <cflux.h>
#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    return strcmp(((const sorted_name *)a)->text, ((const sorted_name *)b)->text);
}

sorted_name *sorted_names(void *tuple)
{
    const int64_t n = fx_count(tuple);
    sorted_name *names = calloc((size_t)n + 1, sizeof *names);
    for (int64_t i = 0; names && i < n; i++)
        names[i] = (sorted_name){fx_child_name(tuple, i), i};
    if (names)
        qsort(names, (size_t)n, sizeof *names, by_text);
    return names;
}

int64_t index_of_name(const sorted_name *names, int64_t n, const char *wanted)
{
    const sorted_name key = {.text = wanted};
    const sorted_name *found = bsearch(&key, names, (size_t)n, sizeof key, by_text);
    return found ? found->index : -1;
}
