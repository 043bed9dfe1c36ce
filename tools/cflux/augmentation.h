/* augmentation.h: random changes of the images of a training step: the option --augment. */
#ifndef CFLUX_TOOL_AUGMENTATION_H
#define CFLUX_TOOL_AUGMENTATION_H

#include <cflux.h>

typedef struct augmentation {
    bool flip;     /* reverse the width of each image with probability 0.5 */
    int64_t shift; /* move each image by up to this many pixels along both axes; 0: do not */
    double noise;  /* standard deviation of noise that is added to the scaled inputs; 0: none */
} augmentation;

/* Parses "flip,shift=2,noise=0.1"; NULL: no change. Returns EXIT_FINE, or EXIT_BAD_INPUT (printed).
 */
int augmentation_parse(const char *text, augmentation *out);
/* Checks that the observations have width, height and channels. Returns as augmentation_parse. */
int augmentation_check(const augmentation *a, const char *data, const fx_array *x);
/* The changed images in a training step; x itself outside of one. */
fx_array *augmented(const augmentation *a, fx_array *x);

#endif
