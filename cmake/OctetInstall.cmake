# Rules for installing the programs with their manual pages and completions, the scripts that read
# results, the libraries with their public headers, a CMake package and a pkg-config file; and for
# the .deb that cpack makes of all that.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octet)

# Headers go where users include them from: <octet/node.h>.
set_target_properties(octet_kernels PROPERTIES EXPORT_NAME octet)
set_target_properties(octet_runtime PROPERTIES EXPORT_NAME runtime)
set_target_properties(octet_platform PROPERTIES EXPORT_NAME platform)
set_target_properties(octet_net PROPERTIES EXPORT_NAME net)
# All that is installed, without the tests.
add_custom_target(octet_installed DEPENDS octet octet_kernels octet_net)
install(TARGETS octet)
if(OCTET_HAS_MPI)
  install(TARGETS octet_mpi)
endif()
install(TARGETS octet_kernels octet_net octet_runtime octet_platform EXPORT octetTargets
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(emulated_hip_dir ${CMAKE_INSTALL_LIBDIR}/octet/emulated_hip)
if(OCTET_PLATFORM STREQUAL "emulation")
  # For kernels only, so that it hides no real HIP from other files: octet_mark_kernels().
  install(DIRECTORY runtime/platform/emulation/hip DESTINATION ${emulated_hip_dir}
          FILES_MATCHING PATTERN "hip_*.h" PATTERN "kernel_interface.h"
          PATTERN "hip_internal.h" EXCLUDE)
endif()
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY tests/package/example/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/example)

# octet_add_man_page(<target> <summary>): a manual page made of the program's --help. None where the
# program may be linked to a stub of ROCm, with which it does not start.
find_package(Python3 COMPONENTS Interpreter)
function(octet_add_man_page target summary)
  if(NOT Python3_Interpreter_FOUND OR OCTET_ROCM_IS_STUB)
    return()
  endif()
  set(page ${CMAKE_CURRENT_BINARY_DIR}/${target}.1)
  set(script ${PROJECT_SOURCE_DIR}/tools/make_man.py)
  add_custom_command(OUTPUT ${page}
                     COMMAND Python3::Interpreter ${script} $<TARGET_FILE:${target}>
                             ${PROJECT_VERSION} ${summary} ${page}
                     DEPENDS ${target} ${script}
                     COMMENT "Manual page of ${target}" VERBATIM)
  add_custom_target(${target}_man ALL DEPENDS ${page})
  add_dependencies(octet_installed ${target}_man)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()
octet_add_man_page(octet ${PROJECT_DESCRIPTION})

# octet_install_link(<name> <folder> <file>): <folder>/<name>, a relative link to the installed <file>.
function(octet_install_link name folder file)
  file(RELATIVE_PATH target /${folder} /${file})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/links)
  file(CREATE_LINK ${target} ${PROJECT_BINARY_DIR}/links/${name} SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/links/${name} DESTINATION ${folder})
endfunction()

if(OCTET_HAS_MPI AND TARGET octet_man)
  set(man_dir ${CMAKE_INSTALL_MANDIR}/man1)
  octet_install_link(octet_mpi.1 ${man_dir} ${man_dir}/octet.1)
endif()

# The scripts stand beside the module that they share.
set(script_dir ${CMAKE_INSTALL_DATADIR}/octet)
install(PROGRAMS tools/plot.py tools/compare.py DESTINATION ${script_dir})
install(FILES tools/results.py tools/layer_picture.py DESTINATION ${script_dir})
octet_install_link(octet-plot ${CMAKE_INSTALL_BINDIR} ${script_dir}/plot.py)
octet_install_link(octet-compare ${CMAKE_INSTALL_BINDIR} ${script_dir}/compare.py)

# bash looks for a command's completions in the file of its name.
set(completion_dir ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES tools/octet.bash DESTINATION ${completion_dir} RENAME octet)
octet_install_link(octet_bench ${completion_dir} ${completion_dir}/octet)
if(OCTET_HAS_MPI)
  octet_install_link(octet_mpi ${completion_dir} ${completion_dir}/octet)
endif()

# ---- find_package(octet CONFIG)

install(EXPORT octetTargets NAMESPACE octet:: DESTINATION ${package_dir})
configure_package_config_file(cmake/octetConfig.cmake.in octetConfig.cmake
                              INSTALL_DESTINATION ${package_dir} PATH_VARS emulated_hip_dir)
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
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-matplotlib, python3-scipy")  # octet-plot, octet-compare
if(OCTET_PLATFORM STREQUAL "emulation")
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", clang-22 | clang (>= 1:18)")  # compiles kernels
endif()
if(OCTET_HAS_MPI)
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", libopenmpi-dev, openmpi-bin")  # octet::net
endif()
include(CPack)
