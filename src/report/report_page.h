/* report_page.h: the template of the report page, generated at build time from page/
 * (embed_report.cmake). */
#ifndef CFLUX_REPORT_PAGE_H
#define CFLUX_REPORT_PAGE_H

/* Placeholder for the JSON document; occurs once in the page. */
#define FXI_REPORT_PLACEHOLDER "{{document}}"
extern const unsigned char fxi_report_page[];

#endif
