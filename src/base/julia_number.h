/* julia_number.h: formats numbers as Julia prints them. Internal. */
#ifndef CFLUX_JULIA_NUMBER_H
#define CFLUX_JULIA_NUMBER_H

#include <cflux/array.h>

enum { FXI_NUMBER_TEXT = 48 };

typedef enum fxi_number_form {
    FXI_NUMBER_ALONE,  /* alone: 0.5f0, Float16(0.5), true */
    FXI_NUMBER_VECTOR, /* in a column whose type is known: 0.5, 1.0f-5, 1 for true */
    FXI_NUMBER_MATRIX  /* the same with at most six significant digits */
} fxi_number_form;

/* Writes the element and returns buf. */
const char *fxi_number_text(fx_dtype dtype, const void *element, fxi_number_form form,
                            char buf[FXI_NUMBER_TEXT]);

/* Formats a Float64 that is printed alone: "0.1", "1.0e-8", "1.0e6", "NaN". Returns buf. */
const char *fxi_float64_text(double v, char buf[FXI_NUMBER_TEXT]);

/* Formats a number of bytes like Base.format_bytes: "744 bytes", "3.004 KiB". Returns buf. */
const char *fxi_bytes_text(int64_t bytes, char buf[FXI_NUMBER_TEXT]);

/* The numbers of characters before the decimal point (or exponent), and from it to the end.
 * Columns are aligned by them. */
void fxi_number_split(fx_dtype dtype, const char *number, int *out_left, int *out_right);

#endif
