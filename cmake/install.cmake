# install.cmake: what `make install` and `make deb` install, in four parts: runtime (the library and
# its plugins), onednn (a plugin that needs a large library), dev (headers, the source of the Fortran module,
# static library, pkg-config file, CMake package) and tools. The static library is a CMake component of its own,
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
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
if(WIN32)
    install(FILES ${PROJECT_BINARY_DIR}/cflux.def DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endif()
install(TARGETS cflux_static EXPORT cflux-static-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
foreach(part cflux-targets cflux-static-targets)
    install(EXPORT ${part} NAMESPACE cflux:: DESTINATION ${CFLUX_CMAKE_DIR} COMPONENT dev)
endforeach()
install(TARGETS ${CFLUX_GPU_PLUGINS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cflux COMPONENT runtime)
# A plugin that is linked with a library of others is a package of its own: its target is cflux_NAME.
set(CFLUX_PLUGIN_PARTS "")
foreach(part IN ITEMS onednn mpi_openmpi mpi_mpich)
    if(TARGET cflux_${part})
        list(APPEND CFLUX_PLUGIN_PARTS ${part})
        install(TARGETS cflux_${part} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cflux COMPONENT ${part})
    endif()
endforeach()
set(CFLUX_ABOUT_onednn "convolutions by oneDNN")
set(CFLUX_ABOUT_mpi_openmpi "distributed training over Open MPI")
set(CFLUX_ABOUT_mpi_mpich "distributed training over MPICH")
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.def" PATTERN "*.f90")
install(FILES ${PROJECT_BINARY_DIR}/cflux.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/cflux-config.cmake ${PROJECT_BINARY_DIR}/cflux-config-version.cmake
    DESTINATION ${CFLUX_CMAKE_DIR} COMPONENT dev)

# Each package contains the licence.
set(packages runtime:libcflux${CFLUX_SOVERSION} dev:libcflux-dev)
if(TARGET cflux_tool)
    list(APPEND packages tools:cflux)
endif()
foreach(part IN LISTS CFLUX_PLUGIN_PARTS)
    string(REPLACE "_" "-" name ${part})
    list(APPEND packages ${part}:libcflux-${name})
endforeach()
foreach(entry IN LISTS packages)
    string(REPLACE ":" ";" entry ${entry})
    list(GET entry 0 part)
    list(GET entry 1 package)
    install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} RENAME copyright COMPONENT ${part})
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
foreach(part IN LISTS CFLUX_PLUGIN_PARTS)
    string(TOUPPER ${part} PART)
    string(REPLACE "_" "-" name ${part})
    list(APPEND CPACK_COMPONENTS_ALL ${part})
    set(CPACK_DEBIAN_${PART}_PACKAGE_NAME libcflux-${name})
    set(CPACK_DEBIAN_${PART}_PACKAGE_SECTION libs)
    set(CPACK_COMPONENT_${PART}_DESCRIPTION "neural networks as plain C expressions: ${CFLUX_ABOUT_${part}}")
endforeach()
if(TARGET cflux_tool)
    list(APPEND CPACK_COMPONENTS_ALL tools)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME cflux)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
    set(CPACK_COMPONENT_TOOLS_DESCRIPTION "neural networks as plain C expressions: the command line")
endif()
include(CPack)
