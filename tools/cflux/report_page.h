/* report_page.h: the page of a report, made at build time from report/ (embed_report.cmake). */
#ifndef CFLUX_TOOL_REPORT_PAGE_H
#define CFLUX_TOOL_REPORT_PAGE_H

/* Where the JSON document goes; it stands once in the page. */
#define REPORT_HOLE "{{document}}"
extern const unsigned char report_page[];

#endif
