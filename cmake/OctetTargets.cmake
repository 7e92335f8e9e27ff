# How this project makes targets. Source lists are explicit; a .hip file among the sources is
# compiled in the platform's kernel language.

include(OctetKernels)

# octet_precompile(<pch target> <header>...): makes <pch target>, whose precompiled headers others
# take by octet_use_precompiled(<target> <pch target>). Both do nothing without OCTET_PRECOMPILE.
# precompile.sh says what ccache needs.
function(octet_precompile name)
  if(OCTET_PRECOMPILE)
    file(CONFIGURE OUTPUT ${name}.cc CONTENT "// Stands for the headers alone.\n")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
    target_precompile_headers(${name} PRIVATE ${ARGN})
    target_link_libraries(${name} PRIVATE absl::statusor absl::str_format absl::synchronization
                          nlohmann_json::nlohmann_json $<TARGET_NAME_IF_EXISTS:GTest::gmock>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
      set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
                            "${PROJECT_SOURCE_DIR}/cmake/precompile.sh;${PROJECT_SOURCE_DIR}")
    endif()
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

# UNOPTIMIZED, of what follows: host code that no time is spent in is not optimised, and described to
# the debugger by lines alone. Both took most of its compile time. Kernels are compiled as everywhere,
# and on nvidia, where times are measured, so is host code: GCC's warnings also depend on what it
# optimises.
set(octet_unoptimized)
if(NOT OCTET_PLATFORM STREQUAL "nvidia")
  set(octet_unoptimized "$<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-O0;-g1>")
endif()
# Takes it back, for kernels in emulation, which are C++ as well.
separate_arguments(octet_optimized UNIX_COMMAND "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
set(octet_optimized "$<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:${octet_optimized}>")
octet_precompile(octet_unoptimized_precompiled ${octet_common_headers})
if(TARGET octet_unoptimized_precompiled)
  target_compile_options(octet_unoptimized_precompiled PRIVATE ${octet_unoptimized})
endif()

# The linker takes an inline function that several objects have from the first of them. Libraries, which
# are optimised, must not get the copies of a program that is not: these come before its own.
if(octet_unoptimized)
  add_library(octet_optimized_templates OBJECT ${PROJECT_SOURCE_DIR}/cmake/optimized_templates.cc)
  target_compile_options(octet_optimized_templates PRIVATE -O2)
endif()
function(octet_link_optimized_templates program)
  if(TARGET octet_optimized_templates)
    add_dependencies(${program} octet_optimized_templates)
    target_link_options(${program} PRIVATE $<TARGET_OBJECTS:octet_optimized_templates>)
    set_property(TARGET ${program} APPEND PROPERTY
                 LINK_DEPENDS $<TARGET_OBJECTS:octet_optimized_templates>)
  endif()
endfunction()

# octet_compile_folders(<target> <file.cc>... [APART <name>]): with OCTET_UNITY, up to eight of these
# files that lie in one folder, and have the same APART, are one for the compiler, which so reads their
# headers once. What they have in unnamed namespaces needs different names then. Folders of files that
# name things alike are left out.
set(octet_separate_folders bench tests/faults tools/commands tools/contenders)
function(octet_compile_folders target)
  if(NOT OCTET_UNITY)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "APART" "")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(file IN LISTS arg_UNPARSED_ARGUMENTS)
    cmake_path(ABSOLUTE_PATH file)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    cmake_path(GET folder PARENT_PATH folder)
    if(folder IN_LIST octet_separate_folders OR file MATCHES "^${PROJECT_BINARY_DIR}/")
      continue()
    endif()
    string(MAKE_C_IDENTIFIER "${folder}${arg_APART}" folder)
    get_property(before TARGET ${target} PROPERTY OCTET_FILES_OF_${folder})
    math(EXPR group "0${before} / 8")
    math(EXPR after "0${before} + 1")
    set_property(TARGET ${target} PROPERTY OCTET_FILES_OF_${folder} ${after})
    set_property(SOURCE ${file} TARGET_DIRECTORY ${target}
                 PROPERTY UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# octet_compile_host_code(<target> <unoptimized> <source>...): how a target's .cc files are compiled.
function(octet_compile_host_code target unoptimized)
  set(files ${ARGN})
  list(FILTER files INCLUDE REGEX "\\.cc$")
  if(NOT files)
    return()
  endif()
  octet_compile_folders(${target} ${files})
  if(unoptimized)
    target_compile_options(${target} PRIVATE ${octet_unoptimized})
    octet_use_precompiled(${target} octet_unoptimized_precompiled)
  else()
    octet_use_precompiled(${target} octet_precompiled)
  endif()
endfunction()

# octet_add_library(<name> [UNOPTIMIZED] SOURCES <file.cc|file.hip>... [HEADERS <file.h>...]
#                   DEPS <target>...)
# A static library; without sources an interface one, so that it can be linked already. HEADERS are
# those that users include, below include/: they are installed (package_test).
function(octet_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "UNOPTIMIZED" "" "SOURCES;HEADERS;DEPS")
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
  octet_compile_host_code(${name} ${arg_UNOPTIMIZED} ${arg_SOURCES})
  set(kernels ${arg_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.hip$")
  if(kernels)
    octet_mark_kernels(${kernels})
    if(arg_UNOPTIMIZED)
      set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS ${octet_optimized})
    endif()
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

# octet_add_executable(<name> [UNOPTIMIZED] SOURCES <file.cc>... DEPS <target>...)
# Without sources, nothing.
function(octet_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "UNOPTIMIZED" "" "SOURCES;DEPS")
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  octet_compile_host_code(${name} ${arg_UNOPTIMIZED} ${arg_SOURCES})
  if(arg_UNOPTIMIZED)
    octet_link_optimized_templates(${name})
  endif()
endfunction()

# octet_add_test(<name> <file.cc>... [ALONE] [KERNELS <file.hip>...] [DEPS <target>...]
#                [DEFINITIONS <NAME=value>...] [ENV <NAME=value>...] [LABELS <label>...]
#                [TIMEOUT <seconds>] [COST <seconds>] [WAVES] [SHARDS <number>]
#                [SANITIZE_FILTER <filter>])
# One ctest entry of this name, which runs the tests of these files. They are part of the program
# ${octet_test_program}, which the CMakeLists.txt of each floor sets; with ALONE, or without one,
# they are a program <name>: for what replaces kernels of the library, or needs another process.
# SHARDS: instead so many entries, <name>.1 and so on, which share the cases. WAVES adds a second
# entry of each, <entry>.wave32, in emulation: the same with waves of 32 lanes (the default is 64).
# Tests labelled `sanitize` also run under the sanitizers, which make them 3 to 20 times slower: with
# one size of waves, and only the cases of SANITIZE_FILTER (as --gtest_filter) where it is given.
# Tests labelled `address`, which have one thread and no kernels, run under AddressSanitizer alone.
# Builds with sanitizers have no other tests. ctest begins with the tests of the highest COST, in
# seconds of processor time (shards share it), so that none is left alone at the end. (It measures
# them itself, but knows nothing in the first run.)
add_custom_target(octet_sanitize_tests)
if(OCTET_TESTS)
  octet_precompile(octet_test_precompiled ${octet_common_headers} <random> <gmock/gmock.h>
                   <gtest/gtest.h>)
  add_library(octet_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/support/test_main.cc)
  target_link_libraries(octet_test_main PUBLIC absl::strings GTest::gmock GTest::gtest)
  target_compile_options(octet_test_main PRIVATE ${octet_unoptimized})
  octet_use_precompiled(octet_test_main octet_test_precompiled)
  if(TARGET octet_test_precompiled)
    target_compile_options(octet_test_precompiled PRIVATE ${octet_unoptimized})
  endif()
endif()

# octet_add_test_objects(<name> <file.cc>... [DEPS <target>...]): what several tests share, compiled
# once. Tests take it as one of their DEPS.
function(octet_add_test_objects name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPS")
  add_library(${name} OBJECT ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${octet_unoptimized})
  target_link_libraries(${name} PUBLIC ${arg_DEPS} GTest::gmock)
  octet_compile_folders(${name} ${arg_UNPARSED_ARGUMENTS})
  octet_use_precompiled(${name} octet_test_precompiled)
endfunction()

# octet_add_test_program(<name>): a program of tests without any yet.
function(octet_add_test_program name)
  add_executable(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${octet_unoptimized})
  octet_use_precompiled(${name} octet_test_precompiled)
  octet_link_optimized_templates(${name})
  target_link_libraries(${name} PRIVATE octet_test_main GTest::gmock GTest::gtest)
  add_dependencies(octet_sanitize_tests ${name})
  if(OCTET_SANITIZE STREQUAL "weak-memory")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/stale_reads_listener.cc)
  endif()
endfunction()

function(octet_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;WAVES" "TIMEOUT;COST;SHARDS;SANITIZE_FILTER"
                        "KERNELS;DEPS;DEFINITIONS;ENV;LABELS")
  set(apart)
  if("sanitize" IN_LIST arg_LABELS)
    set(apart APART _sanitize)  # as in the build with weak memory, for which ccache has them then
  endif()
  if("address" IN_LIST arg_LABELS AND OCTET_SANITIZE MATCHES "address")
    list(APPEND arg_LABELS sanitize)
  endif()
  if(OCTET_SANITIZE AND NOT "sanitize" IN_LIST arg_LABELS)
    return()
  endif()
  set(program ${octet_test_program})
  set(source)
  if(arg_ALONE OR NOT program)
    set(program ${name})
  else()
    list(TRANSFORM arg_UNPARSED_ARGUMENTS REPLACE ".*/" "" OUTPUT_VARIABLE files)
    list(JOIN files "," files)
    set(source --source=${files})
  endif()
  if(NOT TARGET ${program})
    octet_add_test_program(${program})
  endif()
  list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/
                                        REGEX "^[^/$]" OUTPUT_VARIABLE files)
  target_sources(${program} PRIVATE ${files})
  octet_compile_folders(${program} ${files} ${apart})
  if(files AND arg_DEFINITIONS)
    set_property(SOURCE ${files} TARGET_DIRECTORY ${program}
                 APPEND PROPERTY COMPILE_DEFINITIONS ${arg_DEFINITIONS})
  endif()
  if(arg_KERNELS)
    octet_add_kernels(${name}_kernels ${arg_KERNELS})
    target_link_libraries(${program} PRIVATE ${name}_kernels)
  endif()
  target_link_libraries(${program} PRIVATE ${arg_DEPS})
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
    add_test(NAME ${entry} COMMAND ${program} ${source} ${filter})
    set_property(TEST ${entry} APPEND PROPERTY ENVIRONMENT ${shard})
    list(APPEND entries ${entry})
    if(arg_WAVES AND OCTET_PLATFORM STREQUAL "emulation" AND NOT OCTET_SANITIZE)
      add_test(NAME ${entry}.wave32 COMMAND ${program} ${source})
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

# octet_add_mpi_test(<name> <source>... NODES <number>... [any of octet_add_test but SHARDS, WAVES]):
# a test that runs by itself, as one node, and under mpirun as several: <name>.<number>; under the
# sanitizers as three at most, since a fourth only makes it slower. The settings are Open MPI's: more
# processes than cores, none bound to cores, and no look at networks that one machine does not need,
# nor at its caches and buses.
function(octet_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;COST;SANITIZE_FILTER" "NODES;DEPS;ENV")
  # Open MPI keeps memory until the process ends, much of it allocated by libraries that it has
  # unloaded by then, which LeakSanitizer cannot suppress by name.
  string(REPLACE "ASAN_OPTIONS=" "ASAN_OPTIONS=detect_leaks=0:" OCTET_TEST_ENVIRONMENT
                 "${OCTET_TEST_ENVIRONMENT}")
  string(REPLACE "TSAN_OPTIONS="
                 "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/runtime/net/open_mpi_races.txt:"
                 OCTET_TEST_ENVIRONMENT "${OCTET_TEST_ENVIRONMENT}")
  list(APPEND arg_ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
       OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
       OMPI_MCA_mpi_yield_when_idle=0 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
       HWLOC_COMPONENTS=no_os,stop HWLOC_PLUGINS_PATH=/dev/null)
  octet_add_test(${name} ALONE ${arg_UNPARSED_ARGUMENTS} DEPS ${arg_DEPS} mpi_environment octet_net MPI::MPI_CXX
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
                         LABELS "sanitize;mpi")
    set_property(TEST ${name}.${nodes} APPEND PROPERTY ENVIRONMENT ${arg_ENV}
                                                       ${OCTET_TEST_ENVIRONMENT})
  endforeach()
endfunction()
