# What is installed: the program, the libraries with their public headers, a CMake package and a
# pkg-config file for them; and the .deb that cpack makes of it.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octet)

# One folder for all headers, in which includes look as they do in the source tree.
set_target_properties(octet_kernels PROPERTIES EXPORT_NAME octet)
set_target_properties(octet_runtime PROPERTIES EXPORT_NAME runtime)
set_target_properties(octet_platform PROPERTIES EXPORT_NAME platform)
install(TARGETS octet)
install(TARGETS octet_kernels octet_runtime octet_platform EXPORT octetTargets
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/octet)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY tests/package/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/example)

# ---- find_package(octet CONFIG)

install(EXPORT octetTargets NAMESPACE octet:: DESTINATION ${package_dir})
configure_package_config_file(cmake/octetConfig.cmake.in octetConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(octetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/octetConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/octetConfigVersion.cmake cmake/OctetKernels.cmake
        DESTINATION ${package_dir})

# ---- pkg-config

file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pc ${prefix_from_pc})
get_target_property(pc_requires octet_runtime LINK_LIBRARIES)
list(FILTER pc_requires INCLUDE REGEX "^absl::")
list(TRANSFORM pc_requires REPLACE "^absl::" "absl_")
list(JOIN pc_requires ", " pc_requires)
get_target_property(pc_cflags octet_platform OCTET_PC_CFLAGS)
get_target_property(pc_libs octet_platform OCTET_PC_LIBS)
get_target_property(pc_kernel_flags octet_platform OCTET_PC_KERNEL_FLAGS)
list(JOIN OCTET_KERNEL_OPTIONS " " kernel_options)
configure_file(cmake/octet.pc.in octet.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/octet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- cpack: a package for each platform, one of which can be installed at a time

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME octet-${OCTET_PLATFORM})
set(CPACK_PACKAGE_VENDOR Octet)
set(CPACK_PACKAGE_CONTACT "The Octet authors")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_PROVIDES octet)
set(CPACK_DEBIAN_PACKAGE_CONFLICTS octet)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
math(EXPR absl_next "${absl_VERSION} + 1")
set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "libabsl-dev (>= ${absl_VERSION}), libabsl-dev (<< ${absl_next})")
if(OCTET_PLATFORM STREQUAL "emulation")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "clang-22 | clang (>= 1:18)")  # compiles kernels
endif()
include(CPack)
