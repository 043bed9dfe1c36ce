/* model_text.h: checks whether the notation of a model is enough to make the model again. */
#ifndef CFLUX_TOOL_MODEL_TEXT_H
#define CFLUX_TOOL_MODEL_TEXT_H

#include <cflux.h>

typedef enum text_worth {
    TEXT_NO_MEMORY, /* unknown: out of memory */
    TEXT_USELESS,   /* cannot be parsed, or gives other layers or arrays */
    TEXT_MOST,      /* gives the same arrays but differs in a setting */
    TEXT_ALL
} text_worth;

/* Parses the text and compares sizes, settings and shared arrays with the model. Differences are
 * described in `what`. */
text_worth model_text_worth(void *model, const char *text, char *what, size_t size);

#endif
