# c_bytes(TEXT OUT): the text as the members of an array of char, because the length of strings in C is limited.
function(c_bytes text out)
    string(HEX "${text}" bytes)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
    set(${out} "${bytes}0" PARENT_SCOPE)
endfunction()
