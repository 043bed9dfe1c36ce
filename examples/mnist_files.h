/* mnist_files.h: reads the files of MNIST, and draws images of the same size. Used by mnist.c,
 * lenet.c, vae.c and dcgan.c. */
#ifndef MNIST_FILES_H
#define MNIST_FILES_H

#include <cflux.h>
#include <unistd.h>

enum { MNIST_SIDE = 28, MOST_DRAWN = 256 };

/* Reads a file of the folder, such as train-images-idx3-ubyte (set "train", kind "images-idx3"),
 * with or without .gz. */
static inline fx_array *read_mnist(const char *folder, const char *set, const char *kind)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%s-ubyte", folder, set, kind);
    if (access(path, F_OK) != 0)
        snprintf(path, sizeof path, "%s/%s-%s-ubyte.gz", folder, set, kind);
    return fx_read_idx(path);
}

/* Writes grid² images, with values from 0 to 1, as one picture (PGM). Returns 0 on success. */
static inline int write_digits(fx_array *digits, int grid, const char *path)
{
    static float image[MOST_DRAWN][MNIST_SIDE * MNIST_SIDE];
    const int side = grid * MNIST_SIDE;
    if (grid * grid > MOST_DRAWN ||
        fx_read_as(digits, FX_DTYPE_F32, image, (int64_t)side * side) != FX_OK)
        return 1;
    FILE *f = fopen(path, "wb");
    if (!f)
        return 1;
    fprintf(f, "P5 %d %d 255\n", side, side);
    for (int row = 0; row < side; row++)
        for (int column = 0; column < side; column++) {
            const int digit = row / MNIST_SIDE * grid + column / MNIST_SIDE;
            const int pixel = row % MNIST_SIDE * MNIST_SIDE + column % MNIST_SIDE;
            fputc((int)(255 * image[digit][pixel]), f);
        }
    return fclose(f);
}

#endif
