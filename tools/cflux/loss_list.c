/* loss_list.c: collects everything that a file format cannot hold: see loss_list.h. */
#include "loss_list.h"
#include <stdio.h>
#include <string.h>

enum { ROOM_FOR_COUNT = 40 };

/* If the text ends with ": " and this reason, the length before it, so that another name can be
 * inserted; otherwise 0. */
static size_t length_before(const losses *l, const char *why)
{
    const size_t n = strlen(l->text), m = strlen(why) + 2;
    const bool same =
        n > m && strcmp(l->text + n - m + 2, why) == 0 && memcmp(l->text + n - m, ": ", 2) == 0;
    return same ? n - m : 0;
}

void losses_add(losses *l, const char *name, const char *why)
{
    char one[LOSSES_BYTES];
    const size_t before = name ? length_before(l, why) : 0;
    const size_t used = before ? before : strlen(l->text);
    const char *between = before ? ", " : used ? "; " : "";
    if (name)
        snprintf(one, sizeof one, "%s\"%s\": %s", between, name, why);
    else
        snprintf(one, sizeof one, "%s%s", between, why);
    l->n++;
    if (l->shown + 1 < l->n || used + strlen(one) > LOSSES_BYTES - ROOM_FOR_COUNT)
        return;
    snprintf(l->text + used, LOSSES_BYTES - used, "%s", one);
    l->shown++;
}

const char *losses_sentence(losses *l)
{
    const size_t used = strlen(l->text);
    if (l->shown < l->n)
        snprintf(l->text + used, LOSSES_BYTES - used, "%sand %d more", used ? "; " : "",
                 l->n - l->shown);
    l->shown = l->n;
    return l->text;
}
