/* dataset_images.h: reads folders of PNG and JPEG images, and single images, as observations.
 *
 * In a folder of folders, each inner folder contains the images of a class and has its name.
 * Training and test images may be in two folders of this kind, "train" and "test" (or "val",
 * "valid", "validation"). A folder "train" that contains only images, with no test folder beside
 * it, is a class. A folder that contains images itself has no targets. */
#ifndef CFLUX_TOOL_DATASET_IMAGES_H
#define CFLUX_TOOL_DATASET_IMAGES_H

#include "dataset.h"

/* True for an image, and for a folder that contains images or folders with images. */
bool holds_images(const char *path);

/* Fills in kind, x, y, labels and target; without targets the names of the files too (id). All
 * images must have the size of the first one, or are changed to the size of r->shape. Returns
 * EXIT_FINE, or the exit status of a failure (printed). */
int read_image_files(const data_request *r, dataset *d);

#endif
