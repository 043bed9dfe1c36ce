/* model_text.h: is a model's text in Flux's notation enough to make the model again? */
#ifndef CFLUX_TOOL_MODEL_TEXT_H
#define CFLUX_TOOL_MODEL_TEXT_H

#include <cflux.h>

typedef enum text_worth {
    TEXT_USELESS, /* it cannot be read back */
    TEXT_MOST,    /* it gives a model with the same arrays that differs in a setting */
    TEXT_ALL
} text_worth;

/* Parses the text and compares sizes, settings and shared arrays with the model's. What is not the
 * same is said in `what`. */
text_worth model_text_worth(void *model, const char *text, char *what, size_t size);

#endif
