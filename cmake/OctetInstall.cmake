# Rules for installing the programs with their manual pages and completions, the scripts that read
# results, the libraries with their public headers, a CMake package and a pkg-config file; and for
# the .deb that cpack makes of all that.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octet)

# Headers go where users include them from: <octet/node.h>.
set(libraries octet_model octet_layer octet_gemm octet_ep octet_types octet_runtime)
set(exported ${libraries} octet_platform octet_net)
foreach(library IN LISTS exported)
  string(REPLACE octet_ "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
set_target_properties(octet_kernels PROPERTIES EXPORT_NAME octet)  # all but octet_net
# All that is installed, without the tests.
add_custom_target(octet_installed DEPENDS octet ${libraries} octet_net)
install(TARGETS octet)
# C and Python: kernels/bindings.
if(TARGET octet_c)
  set_target_properties(octet_c PROPERTIES EXPORT_NAME c)
  add_dependencies(octet_installed octet_c)
  install(TARGETS octet_c EXPORT octetTargets FILE_SET HEADERS
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  if(TARGET octet_c_mpi)
    add_dependencies(octet_installed octet_c_mpi)
    install(TARGETS octet_c_mpi)
  endif()
  if(TARGET octet_jax)
    add_dependencies(octet_installed octet_jax)
    install(TARGETS octet_jax LIBRARY DESTINATION lib)
  endif()
  install(DIRECTORY kernels/bindings/c/example/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/example_c)
  install(DIRECTORY kernels/bindings/python/octet DESTINATION lib/python3/dist-packages
          PATTERN "__pycache__" EXCLUDE)
endif()
if(OCTET_HAS_MPI)
  install(TARGETS octet_mpi)
endif()
install(TARGETS octet_kernels ${exported} EXPORT octetTargets
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# CMake strips no static libraries; of these, debug information is all that may go.
install(CODE "
  if(CMAKE_INSTALL_DO_STRIP)
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    file(GLOB libraries \"\${prefix}/${CMAKE_INSTALL_LIBDIR}/liboctet_*.a\")
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug \${libraries}
                    COMMAND_ERROR_IS_FATAL ANY)
  endif()")
set(emulated_hip_dir ${CMAKE_INSTALL_LIBDIR}/octet/emulated_hip)
if(OCTET_PLATFORM STREQUAL "emulation")
  # For kernels only, so that it hides no real HIP from other files: octet_mark_kernels().
  install(DIRECTORY runtime/platform/emulation/hip DESTINATION ${emulated_hip_dir}
          FILES_MATCHING PATTERN "hip_*.h" PATTERN "kernel_interface.h"
          PATTERN "hip_internal.h" EXCLUDE)
endif()
# Documents, with what they link to and the scripts that they call, each in the folder that it has
# in the source.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY bench/figures DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench
        FILES_MATCHING PATTERN "*.svg")
install(DIRECTORY tests/package/example/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/example)
foreach(file IN ITEMS CHANGELOG.md CONTRIBUTING.md LICENSE README.md bench/PERFORMANCE.md
                      runtime/platform/README.md runtime/platform/emulation/gdb_fibers.py
                      tests/tools/cli/check_dump.py tests/tools/cli/make_model.py
                      tests/tools/cli/moe_layer_oracle.py tests/tools/cli/moe_router_oracle.py
                      tests/tools/cli/safetensors_file.py
                      tools/contenders/jax_contender.py tools/layer_demo.sh)
  get_filename_component(folder ${file} DIRECTORY)
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()

# octet_add_man_page(<target> <summary>): a manual page made of the program's --help. None where the
# program may be linked to a stub of ROCm, with which it does not start.
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
foreach(script IN ITEMS plot.py compare.py)
  octet_install_link(${script} ${CMAKE_INSTALL_DOCDIR}/tools ${script_dir}/${script})
endforeach()

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
list(TRANSFORM libraries PREPEND -l OUTPUT_VARIABLE pc_own_libs)
list(JOIN pc_own_libs " " pc_own_libs)
get_target_property(pc_gpu_api_flags octet_platform OCTET_PC_GPU_API_FLAGS)
get_target_property(pc_kernel_flags octet_platform OCTET_PC_KERNEL_FLAGS)
list(JOIN OCTET_KERNEL_OPTIONS " " kernel_options)
set(pc_mpi_libs)
if(OCTET_HAS_MPI)
  list(JOIN MPI_CXX_LIBRARIES " " pc_mpi_libs)
endif()
foreach(package IN ITEMS octet octet-c octet-net)
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

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
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, python3-numpy")  # the Python package
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-matplotlib, python3-scipy")  # octet-plot, octet-compare
if(OCTET_PLATFORM STREQUAL "emulation")
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", clang-22 | clang (>= 1:18)")  # compiles kernels
endif()
if(OCTET_HAS_MPI)
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", libopenmpi-dev, openmpi-bin")  # octet::net
endif()
include(CPack)
