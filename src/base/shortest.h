/* shortest.h: numbers in text as Julia prints them. */
#ifndef CFLUX_SHORTEST_H
#define CFLUX_SHORTEST_H

/* The shortest decimal form that reads back as the same Float64: "0.1", "1.0e-8", "100000.0",
 * "1.0e6", "NaN",
 * "-Inf". Returns text. */
enum { FXI_SHORTEST_TEXT = 32 };
const char *fxi_shortest(double v, char text[FXI_SHORTEST_TEXT]);

#endif
