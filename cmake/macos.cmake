# The toolchain file of `make macos`: CFLUX_ZIG is the folder of the Python package ziglang, whose clang has the
# headers and stubs of macOS, and CFLUX_MAC_CPU is aarch64 or x86_64. CMake needs
# commands of one word, so wrappers for them are made in the build folder.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR ${CFLUX_MAC_CPU})
set(CMAKE_SYSTEM_VERSION 22.0.0) # macOS 13
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CFLUX_ZIG CFLUX_MAC_CPU CFLUX_MAC_TOOLS)
set(CFLUX_MAC_TOOLS ${CMAKE_BINARY_DIR}/tools-of-zig CACHE PATH "Wrappers of zig's commands")
set(target " -target ${CFLUX_MAC_CPU}-macos.13.0")
foreach(tool cc ar ranlib)
    set(words ${tool})
    if(tool STREQUAL cc)
        set(words "cc${target}")
    endif()
    if(NOT EXISTS ${CFLUX_MAC_TOOLS}/${tool})
        file(WRITE ${CFLUX_MAC_TOOLS}/${tool}.new "#!/bin/sh\nexec '${CFLUX_ZIG}/zig' ${words} \"$@\"\n")
        file(COPY ${CFLUX_MAC_TOOLS}/${tool}.new DESTINATION ${CFLUX_MAC_TOOLS}/x FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
        file(RENAME ${CFLUX_MAC_TOOLS}/x/${tool}.new ${CFLUX_MAC_TOOLS}/${tool})
    endif()
endforeach()
set(CMAKE_C_FLAGS_INIT "-Werror=unguarded-availability") # functions that are newer than macOS 13 are errors
set(CFLUX_TOOLCHAIN_WARNINGS -Wno-c2y-extensions -Wno-enum-float-conversion) # warnings that the tested compilers do not have
set(CMAKE_C_COMPILER ${CFLUX_MAC_TOOLS}/cc)
set(CMAKE_AR ${CFLUX_MAC_TOOLS}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${CFLUX_MAC_TOOLS}/ranlib CACHE FILEPATH "")
set(CMAKE_OSX_SYSROOT "" CACHE PATH "")
set(CMAKE_OSX_ARCHITECTURES "" CACHE STRING "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "")
set(CMAKE_INSTALL_NAME_TOOL /bin/false CACHE FILEPATH "") # the linker writes the final names
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_USER_MAKE_RULES_OVERRIDE ${CMAKE_CURRENT_LIST_DIR}/macos-rules.cmake)
set(CMAKE_MACOSX_RPATH ON)
set(CMAKE_INSTALL_NAME_DIR @rpath)
set(CMAKE_BUILD_WITH_INSTALL_NAME_DIR ON)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE) # not those of this machine
    set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH ${CMAKE_BINARY_DIR}/prefix)
