# Chooses the platform and, where nobody has chosen one, its host compiler.

set(OCTET_PLATFORM emulation CACHE STRING "Where kernels run: emulation (CPU), nvidia or amd")
set_property(CACHE OCTET_PLATFORM PROPERTY STRINGS emulation nvidia amd)
if(NOT OCTET_PLATFORM MATCHES "^(emulation|nvidia|amd)$")
  message(FATAL_ERROR "OCTET_PLATFORM is '${OCTET_PLATFORM}'; it must be emulation, nvidia or amd")
endif()

if(OCTET_PLATFORM STREQUAL "amd")
  include(OctetRocm)
endif()

# Emulated kernels keep HIP's __shared__ syntax through -femulated-tls, which only clang has; HIP's
# own headers want the host code to be compiled by the clang that compiles the device code. nvcc
# takes the system's compiler.
if(NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  if(OCTET_PLATFORM STREQUAL "emulation")
    find_program(OCTET_CLANG NAMES clang++-22 REQUIRED)
    set(CMAKE_CXX_COMPILER ${OCTET_CLANG})
  elseif(OCTET_PLATFORM STREQUAL "amd")
    set(CMAKE_CXX_COMPILER ${CMAKE_HIP_COMPILER})
  endif()
endif()

if(NOT DEFINED CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Kind of build")
endif()
