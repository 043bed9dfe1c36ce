/* image_cases.c: prints what the command line reads from an image, for test_images.py. Usage:
 * image_cases FILE [WIDTH HEIGHT CHANNELS]. The first line is the size in the file. With a size,
 * the second line has the bytes of the image, changed to that size, in hexadecimal. A failure
 * prints its reason on stderr, with status 2. */
#include "image_file.h"

#include <stdio.h>
#include <stdlib.h>

static unsigned char *new_pixels(const image_size *size)
{
    return malloc((size_t)(size->width * size->height * size->channels));
}

int main(int argc, char **argv)
{
    char why[IMAGE_WHY];
    image_size file;
    if (argc < 2 || !image_file_size(argv[1], &file, why)) {
        fprintf(stderr, "%s\n", argc < 2 ? "no file" : why);
        return 2;
    }
    printf("%lld %lld %lld\n", (long long)file.width, (long long)file.height,
           (long long)file.channels);
    if (argc < 5)
        return 0;
    const image_size to = {atoi(argv[2]), atoi(argv[3]), atoi(argv[4])};
    const image_size whole = {file.width, file.height, to.channels};
    unsigned char *pixels = new_pixels(&whole), *out = new_pixels(&to);
    int status = 0;
    if (!image_file_read(argv[1], &whole, pixels, why)) {
        fprintf(stderr, "%s\n", why);
        status = 2;
    } else if (!image_resize(&whole, pixels, &to, out)) {
        status = 1;
    } else {
        for (int64_t i = 0; i < to.width * to.height * to.channels; i++)
            printf("%02x", out[i]);
        putchar('\n');
    }
    free(pixels);
    free(out);
    return status;
}
