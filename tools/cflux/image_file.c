/* image_file.c: PNG and JPEG files: see image_file.h. */
#include "image_file.h"
#include "system.h"
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef CFLUX_PNG
#include <png.h>
#endif
#ifdef CFLUX_JPEG
#include <jpeglib.h>
#endif

/* The largest image: a damaged or malicious file may claim any size. */
static const int64_t PIXELS_AT_MOST = 1 << 28;

static bool ends(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && same_start_ignoring_case(name + n - m, ending, m);
}

bool is_image_name(const char *name)
{
    return ends(name, ".png") || ends(name, ".jpg") || ends(name, ".jpeg");
}

static bool failed(char why[IMAGE_WHY], const char *reason)
{
    snprintf(why, IMAGE_WHY, "%s", reason);
    return false;
}

bool image_size_fits(const image_size *size, char why[IMAGE_WHY])
{
    return (size->width > 0 && size->height > 0 && size->width <= PIXELS_AT_MOST / size->height) ||
           failed(why, "an image has at most 2^28 pixels");
}

/* A decoder of one format. `pixels` NULL: reads only the size. */
typedef bool decoder(FILE *f, image_size *size, unsigned char *pixels, char why[IMAGE_WHY]);

/* ---- PNG ------------------------------------------------------------------------------------- */

#ifdef CFLUX_PNG
/* From red, green, blue, alpha of each pixel. Grey as Pillow computes it. */
static void take_colours(const unsigned char *all, const image_size *size, unsigned char *pixels)
{
    for (int64_t i = 0; i < size->width * size->height; i++, all += 4)
        if (size->channels == 3)
            memcpy(pixels + 3 * i, all, 3);
        else
            pixels[i] =
                (unsigned char)((19595 * all[0] + 38470 * all[1] + 7471 * all[2] + 32768) >> 16);
}

static bool read_png(FILE *f, image_size *size, unsigned char *pixels, char why[IMAGE_WHY])
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    bool good = png_image_begin_read_from_stdio(&image, f);
    if (good && !pixels) {
        *size =
            (image_size){image.width, image.height, image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1};
    } else if (good) {
        unsigned char *all = malloc((size_t)(4 * size->width * size->height));
        image.format = PNG_FORMAT_RGBA;
        image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits have the scale of 8 bits */
        good = all && image.width == size->width && image.height == size->height &&
               png_image_finish_read(&image, NULL, all, 0, NULL);
        if (good)
            take_colours(all, size, pixels);
        else if (!all)
            snprintf(image.message, sizeof image.message, "out of memory");
        free(all);
    }
    if (!good)
        failed(why, image.message[0] ? image.message : "it changed while it was read");
    png_image_free(&image);
    return good;
}
#else
static bool read_png(FILE *f, image_size *size, unsigned char *pixels, char why[IMAGE_WHY])
{
    (void)f, (void)size, (void)pixels;
    return failed(why, "this cflux was built without libpng (Debian's package libpng-dev)");
}
#endif

/* ---- JPEG ------------------------------------------------------------------------------------ */

#ifdef CFLUX_JPEG
typedef struct jpeg_failure {
    struct jpeg_error_mgr base; /* first: libjpeg knows only this */
    jmp_buf back;
    char *why;
} jpeg_failure;

static void fail_jpeg(j_common_ptr jpeg)
{
    jpeg_failure *f = (jpeg_failure *)jpeg->err;
    char text[JMSG_LENGTH_MAX];
    f->base.format_message(jpeg, text);
    failed(f->why, text);
    longjmp(f->back, 1);
}

/* Called for warnings (level −1), which mean damaged data, and for traces. */
static void warn_jpeg(j_common_ptr jpeg, int level)
{
    if (level < 0)
        fail_jpeg(jpeg);
}

static void read_rows(struct jpeg_decompress_struct *jpeg, int64_t stride, unsigned char *pixels)
{
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = pixels + (int64_t)jpeg->output_scanline * stride;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
}

static bool read_jpeg(FILE *f, image_size *size, unsigned char *pixels, char why[IMAGE_WHY])
{
    struct jpeg_decompress_struct jpeg;
    jpeg_failure failure = {.why = why};
    jpeg.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = fail_jpeg;
    failure.base.emit_message = warn_jpeg;
    jpeg_create_decompress(&jpeg);
    if (setjmp(failure.back)) {
        jpeg_destroy_decompress(&jpeg);
        return false;
    }
    jpeg_stdio_src(&jpeg, f);
    jpeg_read_header(&jpeg, TRUE);
    bool good = true;
    if (!pixels) {
        *size = (image_size){jpeg.image_width, jpeg.image_height, jpeg.num_components == 1 ? 1 : 3};
        if (jpeg.num_components != 1 && jpeg.num_components != 3)
            good = failed(why, "its colours are neither grey nor RGB");
    } else if (jpeg.image_width == size->width && jpeg.image_height == size->height) {
        jpeg.out_color_space = size->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
        jpeg_start_decompress(&jpeg);
        read_rows(&jpeg, size->width * size->channels, pixels);
        jpeg_finish_decompress(&jpeg);
    } else {
        good = failed(why, "it changed while it was read");
    }
    jpeg_destroy_decompress(&jpeg);
    return good;
}
#else
static bool read_jpeg(FILE *f, image_size *size, unsigned char *pixels, char why[IMAGE_WHY])
{
    (void)f, (void)size, (void)pixels;
    return failed(why, "this cflux was built without libjpeg (Debian's package libjpeg-dev)");
}
#endif

/* ---- any file -------------------------------------------------------------------------------- */

/* The first bytes decide, because names of images are often wrong. */
static bool read_file(const char *path, image_size *size, unsigned char *pixels,
                      char why[IMAGE_WHY])
{
    unsigned char start[2] = {0};
    FILE *f = open_file(path, "rb");
    if (!f)
        return failed(why, strerror(errno));
    bool good;
    const size_t n = fread(start, 1, sizeof start, f);
    if (ferror(f))
        good = failed(why, strerror(errno));
    else if (n == 0)
        good = failed(why, "it is empty");
    else if (fseek(f, 0, SEEK_SET) != 0)
        good = failed(why, strerror(errno));
    else if (start[0] == 0x89 && start[1] == 'P')
        good = read_png(f, size, pixels, why);
    else if (start[0] == 0xff && start[1] == 0xd8)
        good = read_jpeg(f, size, pixels, why);
    else
        good = failed(why, "it is neither a PNG nor a JPEG file");
    fclose(f);
    return good;
}

bool image_file_size(const char *path, image_size *out, char why[IMAGE_WHY])
{
    return read_file(path, out, NULL, why) && image_size_fits(out, why);
}

bool image_file_read(const char *path, const image_size *size, unsigned char *pixels,
                     char why[IMAGE_WHY])
{
    image_size same = *size;
    return read_file(path, &same, pixels, why);
}

/* ---- size ------------------------------------------------------------------------------------ */

/* A new pixel is the sum of the old pixels first … first + n − 1, each times its weight. */
typedef struct window {
    int64_t first, n;
    double *weights;
} window;

static void find_window(int64_t from, int64_t to, int64_t k, window *w)
{
    const double scale = (double)from / (double)to, wide = scale > 1 ? scale : 1;
    const double middle = ((double)k + 0.5) * scale;
    const double before = middle - wide, behind = middle + wide;
    w->first = before < 0 ? 0 : (int64_t)(before + 0.5);
    const int64_t last = behind + 0.5 > (double)from ? from : (int64_t)(behind + 0.5);
    double sum = 0;
    w->n = last - w->first;
    for (int64_t i = 0; i < w->n; i++) {
        const double away = fabs(((double)(w->first + i) + 0.5 - middle) / wide);
        w->weights[i] = away < 1 ? 1 - away : 0;
        sum += w->weights[i];
    }
    for (int64_t i = 0; i < w->n; i++)
        w->weights[i] /= sum;
}

/* Changes the length of one axis from `from` to `to`. Neighbours along the axis are `apart`
 * elements apart, and x has `lines` blocks of from·apart elements. */
static bool resize_axis(int64_t lines, int64_t from, int64_t to, int64_t apart,
                        const unsigned char *x, unsigned char *out)
{
    window w = {.weights = calloc((size_t)from + 1, sizeof(double))};
    for (int64_t k = 0; w.weights && k < to; k++) {
        find_window(from, to, k, &w);
        for (int64_t line = 0; line < lines; line++)
            for (int64_t j = 0; j < apart; j++) {
                double sum = 0;
                for (int64_t i = 0; i < w.n; i++)
                    sum += w.weights[i] * x[(line * from + w.first + i) * apart + j];
                out[(line * to + k) * apart + j] = (unsigned char)(sum + 0.5);
            }
    }
    const bool good = w.weights != NULL;
    free(w.weights);
    return good;
}

bool image_resize(const image_size *from, const unsigned char *pixels, const image_size *to,
                  unsigned char *out)
{
    const int64_t c = to->channels;
    unsigned char *narrow = malloc((size_t)(to->width * from->height * c));
    const bool good = narrow &&
                      resize_axis(from->height, from->width, to->width, c, pixels, narrow) &&
                      resize_axis(1, from->height, to->height, to->width * c, narrow, out);
    free(narrow);
    return good;
}
