# The libraries of the machine.
#
#   OCTET_MPI      ON, OFF, or AUTO: several nodes (World), if MPI is found
#   OCTET_STATIC   link everything but the C library statically, so that the binaries run on another
#                  distribution of the same or a later C library, and start in half of the time

if(OCTET_PLATFORM STREQUAL "nvidia")
  set(static_default ON)  # built on one machine, carried to the node with the GPUs
else()
  set(static_default OFF)
endif()
option(OCTET_STATIC "Link Abseil and the C++ library statically" ${static_default})

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
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
  set(python_required REQUIRED)
endif()
find_package(Python3 ${python_required} COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  # The python3 of a version manager is a script that starts the interpreter: a third of a second.
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)"
                  OUTPUT_VARIABLE Python3_EXECUTABLE OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()

# Distributions install Abseil as archives too, but their CMake package names the shared libraries.
# The archives are for programs only, since they are not position-independent:
# octet_shared_absl(<variable>) returns what a shared library of ours needs in their place.
function(octet_use_static_absl)
  get_directory_property(targets IMPORTED_TARGETS)
  list(FILTER targets INCLUDE REGEX "^absl::")
  foreach(target IN LISTS targets)
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration IN LISTS configurations)
      get_target_property(shared ${target} IMPORTED_LOCATION_${configuration})
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${shared}")
      if(EXISTS "${archive}" AND NOT archive STREQUAL shared)
        set_property(GLOBAL APPEND PROPERTY OCTET_SHARED_ABSL_${target} "${shared}")
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive}
                              IMPORTED_SONAME_${configuration} "")
      endif()
    endforeach()
  endforeach()
endfunction()

# The shared libraries of absl::status and absl::str_format, and of all that these need; nothing where
# these are what the targets name.
function(octet_shared_absl variable)
  set(files)
  set(seen)
  set(targets absl::statusor absl::str_format absl::strings absl::time absl::synchronization)
  while(targets)
    list(POP_FRONT targets target)
    if(target IN_LIST seen OR NOT TARGET ${target})
      continue()
    endif()
    list(APPEND seen ${target})
    get_property(shared GLOBAL PROPERTY OCTET_SHARED_ABSL_${target})
    list(APPEND files ${shared})
    get_target_property(next ${target} INTERFACE_LINK_LIBRARIES)
    if(next)
      list(APPEND targets ${next})
    endif()
  endwhile()
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

if(OCTET_STATIC)
  octet_use_static_absl()
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
