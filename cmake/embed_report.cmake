# Makes OUT, a C file with the page of a report: report.html with its style and script in place.
# Run as: cmake -DFROM=folder -DOUT=file -P …
include(${CMAKE_CURRENT_LIST_DIR}/embed.cmake)
foreach(part html css js)
    file(READ ${FROM}/report.${part} ${part})
endforeach()
string(REPLACE "{{style}}\n" "${css}" page "${html}")
string(REPLACE "{{script}}\n" "${js}" page "${page}")
c_bytes("${page}" bytes)
file(WRITE ${OUT} "/* Made from src/report/page/: see embed_report.cmake. */\n#include \"report_page.h\"\n\n"
    "const unsigned char fxi_report_page[] = {\n${bytes}};\n")
