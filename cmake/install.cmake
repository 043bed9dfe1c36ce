# install.cmake: what `make install` and `make deb` install, in four parts: runtime (the library and
# its plugins), onednn (a plugin that needs a large library), dev (headers, static library,
# pkg-config file, CMake package) and tools. The static library is a CMake component of its own,
# so that programs that link the shared one need no zlib or libbson to build.
include(CMakePackageConfigHelpers)
set(CFLUX_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/cflux)

# From the folder of cflux.pc to the prefix: an installed tree may be moved.
file(RELATIVE_PATH CFLUX_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" CFLUX_PC_UP "${CFLUX_PC_UP}")
configure_file(cmake/cflux.pc.in ${PROJECT_BINARY_DIR}/cflux.pc @ONLY)
configure_package_config_file(cmake/cflux-config.cmake.in ${PROJECT_BINARY_DIR}/cflux-config.cmake
    INSTALL_DESTINATION ${CFLUX_CMAKE_DIR})
# Before 1.0 a new minor version may change the interface (docs/compatibility.md).
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cflux-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS cflux EXPORT cflux-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS cflux_static EXPORT cflux-static-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
foreach(part cflux-targets cflux-static-targets)
    install(EXPORT ${part} NAMESPACE cflux:: DESTINATION ${CFLUX_CMAKE_DIR} COMPONENT dev)
endforeach()
install(TARGETS ${CFLUX_GPU_PLUGINS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cflux COMPONENT runtime)
foreach(plugin IN LISTS CFLUX_MPI_PLUGINS)
    install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cflux COMPONENT runtime)
endforeach()
if(TARGET cflux_onednn)
    install(TARGETS cflux_onednn LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cflux COMPONENT onednn)
endif()
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.def")
install(FILES ${PROJECT_BINARY_DIR}/cflux.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/cflux-config.cmake ${PROJECT_BINARY_DIR}/cflux-config-version.cmake
    DESTINATION ${CFLUX_CMAKE_DIR} COMPONENT dev)

# Each package contains the licence.
foreach(part IN ITEMS runtime:libcflux${CFLUX_SOVERSION} dev:libcflux-dev onednn:libcflux-onednn tools:cflux)
    string(REPLACE ":" ";" part ${part})
    list(GET part 1 package)
    list(GET part 0 part)
    if(NOT (part STREQUAL onednn AND NOT TARGET cflux_onednn) AND NOT (part STREQUAL tools AND NOT TARGET cflux_tool))
        install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} RENAME copyright COMPONENT ${part})
    endif()
endforeach()

# ---- Debian packages (make deb) ------------------------------------------------------------------------
if(NOT CFLUX_ALONE)
    return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cflux)
set(CPACK_PACKAGE_VENDOR cflux)
set(CPACK_PACKAGE_CONTACT "the authors of cflux <cflux@localhost>")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libcflux${CFLUX_SOVERSION})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "neural networks as plain C expressions: the library")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libcflux-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libcflux${CFLUX_SOVERSION} (= ${PROJECT_VERSION}), zlib1g-dev, libbson-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "neural networks as plain C expressions: headers and static library")
if(TARGET cflux_onednn)
    list(APPEND CPACK_COMPONENTS_ALL onednn)
    set(CPACK_DEBIAN_ONEDNN_PACKAGE_NAME libcflux-onednn)
    set(CPACK_DEBIAN_ONEDNN_PACKAGE_SECTION libs)
    set(CPACK_COMPONENT_ONEDNN_DESCRIPTION "neural networks as plain C expressions: convolutions by oneDNN")
endif()
if(TARGET cflux_tool)
    list(APPEND CPACK_COMPONENTS_ALL tools)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME cflux)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
    set(CPACK_COMPONENT_TOOLS_DESCRIPTION "neural networks as plain C expressions: the command line")
endif()
include(CPack)
