# bson.cmake: finds libbson, under the names of its versions.
#
#   BSON_INCLUDE, BSON_LIBRARY   the folder of bson/bson.h, and the library that the build links
#   BSON_STATIC_NAMES            names (not paths) of the libraries that a program linked with libcflux.a needs
#   BSON_STATIC_FLAGS            the same as linker options, for cflux.pc
#
# Its pkg-config files are libbson-1.0 (until 1.30) or bson2 (from 2.0), and for the static library
# libbson-static-1.0 or bson2-static. Where a distribution has no static library, BSON_STATIC_NAMES names the shared one.
# BSON_INCLUDE and BSON_LIBRARY may be given instead.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
    pkg_search_module(BSON_SHARED_PC QUIET libbson-1.0 bson2)
    pkg_search_module(BSON_STATIC_PC QUIET libbson-static-1.0 bson2-static)
endif()
find_path(BSON_INCLUDE bson/bson.h HINTS ${BSON_SHARED_PC_INCLUDE_DIRS} PATH_SUFFIXES libbson-1.0)
find_library(BSON_LIBRARY NAMES ${BSON_SHARED_PC_LIBRARIES} bson-1.0 bson2 HINTS ${BSON_SHARED_PC_LIBRARY_DIRS} NAMES_PER_DIR)
if(NOT BSON_INCLUDE OR NOT BSON_LIBRARY)
    message(FATAL_ERROR "libbson is missing (Debian: libbson-dev): no bson/bson.h, or no libbson-1.0 or libbson2")
endif()

set(BSON_STATIC_NAMES "")
foreach(flag IN LISTS BSON_STATIC_PC_LDFLAGS)
    if(flag MATCHES "^(-l|/.*/lib)([^/]+)$")
        string(REGEX REPLACE "\\.(a|so)$" "" name ${CMAKE_MATCH_2})
        list(APPEND BSON_STATIC_NAMES ${name})
    endif()
endforeach()
if(NOT BSON_STATIC_NAMES)
    string(REGEX REPLACE "^.*/lib([^/]+)\\.(a|so)[.0-9]*$" "\\1" BSON_STATIC_NAMES "${BSON_LIBRARY}")
endif()
list(REMOVE_DUPLICATES BSON_STATIC_NAMES)
list(TRANSFORM BSON_STATIC_NAMES PREPEND -l OUTPUT_VARIABLE BSON_STATIC_FLAGS)
string(REPLACE ";" " " BSON_STATIC_FLAGS "${BSON_STATIC_FLAGS}")
