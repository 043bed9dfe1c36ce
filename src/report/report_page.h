/* report_page.h: the page of a report, made at build time from page/ (embed_report.cmake). */
#ifndef CFLUX_REPORT_PAGE_H
#define CFLUX_REPORT_PAGE_H

/* Where the JSON document goes; it stands once in the page. */
#define FXI_REPORT_HOLE "{{document}}"
extern const unsigned char fxi_report_page[];

#endif
