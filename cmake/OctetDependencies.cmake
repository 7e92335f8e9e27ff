# The libraries of the machine.
#
#   OCTET_MPI      ON, OFF, or AUTO: several nodes (World), if MPI is found
#   OCTET_STATIC   link everything but the C library statically, so that the binaries run on another
#                  distribution of the same or a later C library

if(OCTET_PLATFORM STREQUAL "nvidia")
  set(static_default ON)  # built on one machine, carried to the node with the GPUs
else()
  set(static_default OFF)
endif()
option(OCTET_STATIC "Link Abseil and the C++ library statically" ${static_default})

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(nlohmann_json REQUIRED)
if(OCTET_BENCH)
  find_package(benchmark REQUIRED)
endif()

set(OCTET_MPI AUTO CACHE STRING "Join several nodes by MPI: ON, OFF, or AUTO (if it is found)")
set_property(CACHE OCTET_MPI PROPERTY STRINGS AUTO ON OFF)
set(OCTET_HAS_MPI OFF)
if(NOT OCTET_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface only
  if(OCTET_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS CXX)
  else()
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  set(OCTET_HAS_MPI ${MPI_CXX_FOUND})
endif()
if(OCTET_TESTS)
  find_package(GTest REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

# Distributions install Abseil as archives too, but their CMake package names the shared libraries.
function(octet_use_static_absl)
  get_directory_property(targets IMPORTED_TARGETS)
  list(FILTER targets INCLUDE REGEX "^absl::")
  foreach(target IN LISTS targets)
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration IN LISTS configurations)
      get_target_property(shared ${target} IMPORTED_LOCATION_${configuration})
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${shared}")
      if(EXISTS "${archive}")
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive}
                              IMPORTED_SONAME_${configuration} "")
      endif()
    endforeach()
  endforeach()
endfunction()

if(OCTET_STATIC)
  octet_use_static_absl()
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
