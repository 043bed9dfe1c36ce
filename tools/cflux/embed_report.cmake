# Makes OUT, a C file with the page of a report: report.html with its style and script in place, as
# bytes, since strings of C may not be that long. Run as: cmake -DFROM=folder -DOUT=file -P …
foreach(part html css js)
    file(READ ${FROM}/report.${part} ${part})
endforeach()
string(REPLACE "{{style}}\n" "${css}" page "${html}")
string(REPLACE "{{script}}\n" "${js}" page "${page}")
file(WRITE ${OUT}.html "${page}")
file(READ ${OUT}.html bytes HEX)
file(REMOVE ${OUT}.html)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made from report/: see embed_report.cmake. */\n#include \"report_page.h\"\n\n"
    "const unsigned char report_page[] = {\n${bytes}0};\n")
