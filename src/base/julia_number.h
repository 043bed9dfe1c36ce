/* julia_number.h: numbers as Julia prints them. Internal. */
#ifndef CFLUX_JULIA_NUMBER_H
#define CFLUX_JULIA_NUMBER_H

#include <cflux/array.h>

enum { FXI_NUMBER_TEXT = 48 };

typedef enum fxi_number_form {
    FXI_NUMBER_ALONE,  /* by itself: 0.5f0, Float16(0.5), true */
    FXI_NUMBER_VECTOR, /* in a column whose type is known: 0.5, 1.0f-5, 1 for true */
    FXI_NUMBER_MATRIX  /* the same with at most six significant digits */
} fxi_number_form;

/* Writes the element and returns buf. */
const char *fxi_number_text(fx_dtype dtype, const void *element, fxi_number_form form,
                            char buf[FXI_NUMBER_TEXT]);

/* A Float64 by itself: "0.1", "1.0e-8", "1.0e6", "NaN". Returns buf. */
const char *fxi_float64_text(double v, char buf[FXI_NUMBER_TEXT]);

/* A number of bytes, Base.format_bytes: "744 bytes", "3.004 KiB". Returns buf. */
const char *fxi_bytes_text(int64_t bytes, char buf[FXI_NUMBER_TEXT]);

/* Characters before the point (or exponent) and from there on: what columns are aligned by. */
void fxi_number_split(fx_dtype dtype, const char *number, int *out_left, int *out_right);

#endif
