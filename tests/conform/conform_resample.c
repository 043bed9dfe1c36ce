/* conform_resample.c: rows of the operations of resample.h. Parameters of resizing: mode, 1 for
 * aligned corners, then the spatial sizes of the result. Of patches: spatial axes, kernel, stride,
 * padding, dilation, 1 for flipped. Of sampling: padding, 1 for nearest, 1 for aligned corners. */
#include "conform.h"

/* The parameters from p on, as many as x has spatial axes. */
static fx_dims spatial(const fx_array *x, const int64_t *p)
{
    fx_dims d = {.n = fx_ndims(x) - 2};
    for (int64_t i = 0; i < d.n; i++)
        d.v[i] = p[i];
    return d;
}

static fx_array *b_resize(fx_array *const *x, const int64_t *p)
{
    return fx_resize(x[0], .mode = (fx_resize_mode)p[0], .align_corners = p[1] == 1,
                     .size = spatial(x[0], p + 2));
}

static fx_array *b_pixel_shuffle(fx_array *const *x, const int64_t *p)
{
    return fx_pixel_shuffle(x[0], p[0]);
}

static fx_dims same(int64_t axes, int64_t value)
{
    fx_dims d = {.n = axes};
    for (int64_t i = 0; i < axes; i++)
        d.v[i] = value;
    return d;
}

static fx_array *b_unfold(fx_array *const *x, const int64_t *p)
{
    return fx_unfold(x[0], same(p[0], p[1]), .stride = same(p[0], p[2]), .pad = same(p[0], p[3]),
                     .dilation = same(p[0], p[4]), .flipped = p[5] == 1);
}

/* The size of the result is parameter 6 along every axis. */
static fx_array *b_fold(fx_array *const *x, const int64_t *p)
{
    return fx_fold(x[0], same(p[0], p[6]), same(p[0], p[1]), .stride = same(p[0], p[2]),
                   .pad = same(p[0], p[3]), .dilation = same(p[0], p[4]), .flipped = p[5] == 1);
}

static fx_array *b_grid_sample(fx_array *const *x, const int64_t *p)
{
    return fx_grid_sample(x[0], x[1], .padding = (fx_grid_padding)p[0], .nearest = p[1] == 1,
                          .align_corners = p[2] == 1);
}

static const char *const resizes[] = {"nearest=3x2x4x2:0,1,6,6",
                                      "nearest1=5x2x2:0,1,15",
                                      "linear=4x2x3:1,1,9",
                                      "bilinear=3x4x2x2:1,1,5,7",
                                      "smaller=7x6x2x2:1,1,3,4",
                                      "edges=3x4x2x2:1,0,6,3",
                                      "trilinear=2x3x2x2x2:1,1,4,5,3",
                                      "nearest7=5x4x2x1:0,1,7,3",
                                      "cubic=5x2x2:2,1,9",
                                      "bicubic=4x5x2x1:2,0,7,3",
                                      NULL};
static const char *const shuffles[] = {"r2=3x2x8x2:2", "r3=2x9x2:3", "volume=2x1x2x8x1:2", NULL};
static const char *const unfolds[] = {"2d=5x4x2x3:2,2,1,0,1,0", "padded=5x4x2x2:2,3,2,1,1,1",
                                      "1d=9x3x2:1,3,1,0,2,0", "3d=3x3x3x2x2:3,2,1,0,1,0", NULL};
static const char *const folds[] = {"2d=16x8x2:2,2,1,0,1,0,5", "padded=9x18x2:2,3,2,1,1,1,5",
                                    "1d=5x9x2:1,3,1,0,2,0,9", NULL};
static const char *const grids[] = {"zeros=5x4x2x2 2x3x3x2:0,0,1",
                                    "border=5x4x2x2 2x3x3x2:1,0,1",
                                    "edges=5x4x2x2 2x3x3x2:0,0,0",
                                    "nearest=5x4x2x2 2x3x3x2:1,1,1",
                                    "1d=6x2x2 1x4x2:0,0,1",
                                    "3d=3x3x3x2x1 3x2x2x2x1:0,0,1",
                                    NULL};

/* Resizing that aligns the outer edges cuts positions off at the borders; a grid moves over the
 * edges between elements, where sampling is not smooth. */
const cf_row cf_resample_rows[] = {
    {.name = "resize",
     .build = b_resize,
     .shapes = resizes,
     .nin = 1,
     .domain = {CF_ANY},
     .types = CF_REAL,
     .tolerance = CF_POINT,
     .flags = CF_NO_SECOND | CF_NO_SPECIAL},
    {.name = "pixel_shuffle",
     .build = b_pixel_shuffle,
     .shapes = shuffles,
     .nin = 1,
     .domain = {CF_ANY},
     .types = CF_ALL,
     .tolerance = CF_EXACT,
     .flags = CF_NO_SECOND},
    {.name = "unfold",
     .build = b_unfold,
     .shapes = unfolds,
     .nin = 1,
     .domain = {CF_ANY},
     .types = CF_REAL,
     .tolerance = CF_EXACT,
     .flags = CF_NO_SECOND},
    {.name = "fold",
     .build = b_fold,
     .shapes = folds,
     .nin = 1,
     .domain = {CF_ANY},
     .types = CF_REAL,
     .tolerance = CF_NMSE,
     .flags = CF_NO_SECOND | CF_NO_SPECIAL},
    {.name = "grid_sample",
     .build = b_grid_sample,
     .shapes = grids,
     .nin = 2,
     .domain = {CF_ANY, CF_UNIT},
     .types = CF_REAL,
     .tolerance = CF_POINT,
     .flags = CF_NO_SECOND | CF_NO_SPECIAL | CF_NO_DIFFERENCES},
    {.name = NULL},
};
