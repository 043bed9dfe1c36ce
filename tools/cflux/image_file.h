/* image_file.h: reads PNG and JPEG files with libpng and libjpeg, if cflux was built with them. */
#ifndef CFLUX_TOOL_IMAGE_FILE_H
#define CFLUX_TOOL_IMAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct image_size {
    int64_t width, height, channels; /* channels: 1 (grey) or 3 (red, green, blue) */
} image_size;

enum { IMAGE_WHY = 300 }; /* bytes of the reason for a failure */

/* True if the file's name ends in .png, .jpg or .jpeg, in any case. */
bool is_image_name(const char *name);

/* False with the reason in `why` if an image of this size has more than 2^28 pixels. */
bool image_size_fits(const image_size *size, char why[IMAGE_WHY]);

/* Reads the size of the image in a file, at most 2^28 pixels. False with the reason in `why`. */
bool image_file_size(const char *path, image_size *out, char why[IMAGE_WHY]);

/* Reads the pixels, row by row from the top, with the channels of a pixel side by side. With three
 * channels a grey image has the same number three times; with one channel an image with colours has
 * its luma, (299 red + 587 green + 114 blue) / 1000 (ITU-R BT.601). Transparency is ignored.
 * `pixels` has space for an image of this size, whose width and height are those of the file. */
bool image_file_read(const char *path, const image_size *size, unsigned char *pixels,
                     char why[IMAGE_WHY]);

/* Changes the size of an image as Pillow's resize with BILINEAR does: each new pixel is the mean of
 * old pixels, weighted by a triangle that is 2 new pixels wide, or 2 old pixels if those are
 * larger. False if out of memory. */
bool image_resize(const image_size *from, const unsigned char *pixels, const image_size *to,
                  unsigned char *out);

#endif
