/* gpu_texts.h: every kernel text that the table of steps makes, without a compiler or a device. */
#ifndef GPU_TEXTS_H
#define GPU_TEXTS_H

#include "gpu.h"

typedef struct gpu_text {
    char *source;
    size_t prelude; /* bytes before the kernel's own text */
    char name[64];  /* of the kernel */
    char step[96];  /* the first that makes this text */
} gpu_text;

enum { GPU_TEXTS_MOST = 4096 };
extern gpu_text gpu_texts[GPU_TEXTS_MOST];
/* The different texts among them, and the steps that were prepared. */
extern int gpu_texts_count, gpu_texts_steps;

/* Renders all of a dialect, for a CPU whose groups run one work-item after another if `serial`.
 * The texts of the call before are freed. */
void gpu_texts_render(fxi_gpu_dialect dialect, bool serial);
/* The same for any device. */
void gpu_texts_render_for(fxi_gpu_dialect dialect, const fxi_gpu_limits *limits);
void gpu_texts_free(void);
/* Prepares all steps for a device of these limits. Returns how many fused steps it refuses, which
 * is not to be recorded; the test fails if it refuses another one. */
int gpu_texts_refusals(const fxi_gpu_limits *limits);

#endif
