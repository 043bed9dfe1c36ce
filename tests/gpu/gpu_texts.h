/* gpu_texts.h: builds the kernel texts of all steps of gpu_steps.h, without compiling them. */
#ifndef GPU_TEXTS_H
#define GPU_TEXTS_H

#include "gpu.h"

typedef struct gpu_text {
    char *source;
    size_t prelude; /* bytes before the kernel's own text */
    char name[64];  /* of the kernel */
    char step[96];  /* the first step that needs this text */
} gpu_text;

enum { GPU_TEXTS_MOST = 4096 };
extern gpu_text gpu_texts[GPU_TEXTS_MOST];
/* The number of different texts, and of steps that were prepared. */
extern int gpu_texts_count, gpu_texts_steps;

/* Builds all texts in a dialect; `serial`: for a CPU that runs a group's work-items one after
 * another. Frees the texts of the previous call. */
void gpu_texts_render(fxi_gpu_dialect dialect, bool serial);
/* The same for a device with warps of `warp` work-items, or with these limits. */
void gpu_texts_render_for_warp(fxi_gpu_dialect dialect, int warp);
void gpu_texts_render_for(fxi_gpu_dialect dialect, const fxi_gpu_limits *limits);
void gpu_texts_free(void);
/* Prepares all steps for a device with these limits. Returns the number of fused steps that are
 * refused. The test fails if a refusal is recorded as an error, or if any other step fails. */
int gpu_texts_refusals(const fxi_gpu_limits *limits);

#endif
