# How this project makes targets. Source lists are explicit; a .hip file among the sources is
# compiled in the platform's kernel language.

include(OctetKernels)

# octet_precompile(<pch target> <header>...): makes <pch target>, whose precompiled headers others
# take by octet_use_precompiled(<target> <pch target>). Both do nothing without OCTET_PRECOMPILE.
function(octet_precompile name)
  if(OCTET_PRECOMPILE)
    file(CONFIGURE OUTPUT ${name}.cc CONTENT "// Stands for the headers alone.\n")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
    target_precompile_headers(${name} PRIVATE ${ARGN})
    target_link_libraries(${name} PRIVATE absl::statusor absl::str_format absl::synchronization
                          nlohmann_json::nlohmann_json $<TARGET_NAME_IF_EXISTS:GTest::gmock>)
  endif()
endfunction()
function(octet_use_precompiled target name)
  if(OCTET_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# Headers of other projects only, which seldom change.
set(octet_common_headers <algorithm> <array> <functional> <map> <memory> <optional> <string> <vector>
    <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
    <absl/strings/str_join.h> <absl/synchronization/mutex.h> <absl/time/time.h>
    <nlohmann/json.hpp>)
octet_precompile(octet_precompiled ${octet_common_headers})

# octet_add_library(<name> SOURCES <file.cc|file.hip>... [HEADERS <file.h>...] DEPS <target>...)
# A static library; without sources an interface one, so that it can be linked already. HEADERS are
# those that users include, below include/: they are installed (package_test).
function(octet_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DEPS")
  if(NOT arg_SOURCES)
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${arg_DEPS})
    return()
  endif()
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  if(arg_HEADERS)
    target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${arg_HEADERS})
  endif()
  target_link_libraries(${name} PUBLIC ${arg_DEPS})
  if(arg_SOURCES MATCHES "\\.cc")
    octet_use_precompiled(${name} octet_precompiled)
  endif()
  set(kernels ${arg_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.hip$")
  if(kernels)
    octet_mark_kernels(${kernels})
    list(TRANSFORM kernels PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    set_property(GLOBAL APPEND PROPERTY OCTET_KERNEL_FILES ${kernels})
  endif()
endfunction()

# octet_add_kernels(<name> <file.hip>...): a static library of kernels and their launchers.
function(octet_add_kernels name)
  octet_add_library(${name} SOURCES ${ARGN} DEPS octet_platform)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/runtime/include
                             ${PROJECT_SOURCE_DIR}/kernels/include)
endfunction()

# octet_add_executable(<name> SOURCES <file.cc>... DEPS <target>...)
# Without sources, nothing.
function(octet_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  octet_use_precompiled(${name} octet_precompiled)
endfunction()

# octet_add_test(<name> <file.cc>... [KERNELS <file.hip>...] [DEPS <target>...] [ENV <NAME=value>...]
#                [LABELS <label>...] [TIMEOUT <seconds>] [COST <seconds>] [WAVES] [SHARDS <number>]
#                [SANITIZE_FILTER <filter>])
# One GoogleTest program and one ctest entry of its name. SHARDS: instead so many entries, <name>.1
# and so on, which share the program's cases. WAVES adds a second entry of each, <entry>.wave32,
# in emulation: the same program with waves of 32 lanes (the default is 64). Tests labelled
# `sanitize` also run under the sanitizers, which make them 3 to 20 times slower: with one size of
# waves, and only the cases of SANITIZE_FILTER (as --gtest_filter) where it is given. Tests labelled
# `address`, which have one thread and no kernels, run under AddressSanitizer alone. The target
# octet_sanitize_tests builds what the build's sanitizer runs. ctest begins with the tests of the
# highest COST, in seconds of processor time (shards share it), so that none is left alone at the
# end. (It measures them itself, but knows nothing in the first run.)
#
# Host code of tests is not optimised, and described to the debugger less than the rest: both took
# most of their compile time. Kernels are compiled as everywhere. On nvidia tests are
# compiled as what they test is: GCC's warnings depend on what it optimises.
add_custom_target(octet_sanitize_tests)
set(octet_test_options)
if(NOT OCTET_PLATFORM STREQUAL "nvidia")
  set(octet_test_options $<$<CONFIG:RelWithDebInfo>:-O0> $<$<CONFIG:RelWithDebInfo>:-g1>)
endif()
if(OCTET_TESTS)
  octet_precompile(octet_test_precompiled ${octet_common_headers} <random> <gmock/gmock.h>
                   <gtest/gtest.h>)
  if(OCTET_PRECOMPILE)
    target_compile_options(octet_test_precompiled PRIVATE ${octet_test_options})
  endif()
endif()

# octet_add_test_objects(<name> <file.cc>... [DEPS <target>...]): what several tests share, compiled
# once. Tests take it as one of their DEPS.
function(octet_add_test_objects name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPS")
  add_library(${name} OBJECT ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${octet_test_options})
  target_link_libraries(${name} PUBLIC ${arg_DEPS} GTest::gmock)
  octet_use_precompiled(${name} octet_test_precompiled)
endfunction()

function(octet_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "WAVES" "TIMEOUT;COST;SHARDS;SANITIZE_FILTER"
                        "KERNELS;DEPS;ENV;LABELS")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${octet_test_options})
  octet_use_precompiled(${name} octet_test_precompiled)
  if(arg_KERNELS)
    octet_add_kernels(${name}_kernels ${arg_KERNELS})
    target_link_libraries(${name} PRIVATE ${name}_kernels)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  if("address" IN_LIST arg_LABELS AND OCTET_SANITIZE MATCHES "address")
    list(APPEND arg_LABELS sanitize)
  endif()
  if("sanitize" IN_LIST arg_LABELS)
    add_dependencies(octet_sanitize_tests ${name})
  endif()
  if(OCTET_SANITIZE STREQUAL "weak-memory")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/stale_reads_listener.cc)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(filter)
  if(OCTET_SANITIZE AND arg_SANITIZE_FILTER)
    set(filter --gtest_filter=${arg_SANITIZE_FILTER})
  endif()
  set(parts 1)
  if(arg_SHARDS)
    set(parts ${arg_SHARDS})
  endif()
  set(entries)
  foreach(part RANGE 1 ${parts})
    set(entry ${name})
    set(shard)
    if(arg_SHARDS)
      string(APPEND entry .${part})
      math(EXPR index "${part} - 1")
      set(shard GTEST_TOTAL_SHARDS=${parts} GTEST_SHARD_INDEX=${index})
    endif()
    add_test(NAME ${entry} COMMAND ${name} ${filter})
    set_property(TEST ${entry} APPEND PROPERTY ENVIRONMENT ${shard})
    list(APPEND entries ${entry})
    if(arg_WAVES AND OCTET_PLATFORM STREQUAL "emulation" AND NOT OCTET_SANITIZE)
      add_test(NAME ${entry}.wave32 COMMAND ${name})
      set_property(TEST ${entry}.wave32 APPEND PROPERTY ENVIRONMENT ${shard}
                                                            OCTET_EMULATION_WAVE_SIZE=32)
      list(APPEND entries ${entry}.wave32)
    endif()
  endforeach()
  set_tests_properties(${entries} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if(arg_COST)
    math(EXPR cost "${arg_COST} / ${parts}")
    set_tests_properties(${entries} PROPERTIES COST ${cost})
  endif()
  set_property(TEST ${entries} APPEND PROPERTY ENVIRONMENT ${arg_ENV} ${OCTET_TEST_ENVIRONMENT})
endfunction()

# octet_add_mpi_test(<name> <source>... NODES <number>... [PROCESSORS <number>]
#                    [any of octet_add_test but SHARDS, WAVES]):
# a test that runs by itself, as one node, and under mpirun as several: <name>.<number>; under the
# sanitizers as three at most, since a fourth only makes it slower. It takes PROCESSORS of ctest's
# jobs: 2, or 1 if it mostly waits. The settings are Open MPI's: more processes than cores, and none
# bound to cores.
function(octet_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;COST;SANITIZE_FILTER;PROCESSORS" "NODES;DEPS;ENV")
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 2)
  endif()
  # Open MPI keeps memory until the process ends, much of it allocated by libraries that it has
  # unloaded by then, which LeakSanitizer cannot suppress by name.
  string(REPLACE "ASAN_OPTIONS=" "ASAN_OPTIONS=detect_leaks=0:" OCTET_TEST_ENVIRONMENT
                 "${OCTET_TEST_ENVIRONMENT}")
  string(REPLACE "TSAN_OPTIONS="
                 "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/runtime/net/open_mpi_races.txt:"
                 OCTET_TEST_ENVIRONMENT "${OCTET_TEST_ENVIRONMENT}")
  list(APPEND arg_ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
       OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none)
  octet_add_test(${name} ${arg_UNPARSED_ARGUMENTS} DEPS ${arg_DEPS} mpi_environment octet_net MPI::MPI_CXX
                 LABELS sanitize mpi TIMEOUT ${arg_TIMEOUT} COST ${arg_COST} ENV ${arg_ENV}
                 SANITIZE_FILTER ${arg_SANITIZE_FILTER})
  set(filter)
  if(OCTET_SANITIZE AND arg_SANITIZE_FILTER)
    set(filter --gtest_filter=${arg_SANITIZE_FILTER})
  endif()
  foreach(nodes IN LISTS arg_NODES)
    if(OCTET_SANITIZE AND nodes GREATER 3)
      continue()
    endif()
    add_test(NAME ${name}.${nodes}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${nodes} $<TARGET_FILE:${name}>
                     ${filter})
    set_tests_properties(${name}.${nodes} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_COST}
                         LABELS "sanitize;mpi" PROCESSORS ${arg_PROCESSORS})
    set_property(TEST ${name}.${nodes} APPEND PROPERTY ENVIRONMENT ${arg_ENV}
                                                       ${OCTET_TEST_ENVIRONMENT})
  endforeach()
endfunction()
