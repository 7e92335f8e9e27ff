# How this project makes targets. Source lists are explicit; a .hip file among the sources is
# compiled in the platform's kernel language.

include(OctetKernels)

# octet_add_library(<name> SOURCES <file.cc|file.hip>... [HEADERS <file.h>...] DEPS <target>...)
# A static library; without sources an interface one, so that it can be linked already. HEADERS are
# those that users may include, and what these include: they are installed (package_test).
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
    target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
                   FILES ${arg_HEADERS})
  endif()
  target_link_libraries(${name} PUBLIC ${arg_DEPS})
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
endfunction()

# octet_add_test(<name> <file.cc>... [KERNELS <file.hip>...] [DEPS <target>...] [ENV <NAME=value>...]
#                [LABELS <label>...] [TIMEOUT <seconds>] [WAVES] [SANITIZE_FILTER <filter>])
# One GoogleTest program and one ctest entry of its name. WAVES adds a second entry, <name>.wave32,
# in emulation: the same program with waves of 32 lanes (the default is 64). Tests labelled
# `sanitize` also run under the sanitizers, which make them 3 to 20 times slower: with one size of
# waves, and only the cases of SANITIZE_FILTER (as --gtest_filter) where it is given. The target
# octet_sanitize_tests builds just these.
add_custom_target(octet_sanitize_tests)
function(octet_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "WAVES" "TIMEOUT;SANITIZE_FILTER"
                        "KERNELS;DEPS;ENV;LABELS")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  if(arg_KERNELS)
    octet_add_kernels(${name}_kernels ${arg_KERNELS})
    target_link_libraries(${name} PRIVATE ${name}_kernels)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  if("sanitize" IN_LIST arg_LABELS)
    add_dependencies(octet_sanitize_tests ${name})
  endif()
  if(OCTET_SANITIZE STREQUAL "weak-memory")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/stale_reads_listener.cc)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(entries ${name})
  set(filter)
  if(OCTET_SANITIZE AND arg_SANITIZE_FILTER)
    set(filter --gtest_filter=${arg_SANITIZE_FILTER})
  endif()
  add_test(NAME ${name} COMMAND ${name} ${filter})
  if(arg_WAVES AND OCTET_PLATFORM STREQUAL "emulation" AND NOT OCTET_SANITIZE)
    add_test(NAME ${name}.wave32 COMMAND ${name})
    set_tests_properties(${name}.wave32 PROPERTIES ENVIRONMENT OCTET_EMULATION_WAVE_SIZE=32)
    list(APPEND entries ${name}.wave32)
  endif()
  set_tests_properties(${entries} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  set_property(TEST ${entries} APPEND PROPERTY ENVIRONMENT ${arg_ENV} ${OCTET_TEST_ENVIRONMENT})
endfunction()
