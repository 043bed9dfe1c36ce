# An overlay port: it builds from the sources of the tree that contains it (docs/install.md). It installs the shared library only,
# because vcpkg allows one kind of library for each triplet.
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DCFLUX_TESTS=OFF
        -DCFLUX_TOOLS=OFF
        -DCFLUX_EXAMPLES=OFF
        -DCFLUX_BENCH=OFF
        -DCFLUX_MPI=OFF
        -DCFLUX_ONEDNN=OFF
        -DCFLUX_WERROR=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/cflux)
vcpkg_fixup_pkgconfig()

file(GLOB static_files
    "${CURRENT_PACKAGES_DIR}/lib/libcflux.a" "${CURRENT_PACKAGES_DIR}/debug/lib/libcflux.a"
    "${CURRENT_PACKAGES_DIR}/share/cflux/cflux-static-targets*.cmake")
file(REMOVE_RECURSE ${static_files}
    "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share" "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
