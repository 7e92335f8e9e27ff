# C++20 for every language in use, and the language of .hip files on this platform.
#
# Sets OCTET_KERNEL_LANGUAGE: CXX (emulation), CUDA (nvidia) or HIP (amd).

if(OCTET_PLATFORM STREQUAL "emulation")
  set(OCTET_KERNEL_LANGUAGE CXX)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 18)
    message(FATAL_ERROR "The emulation needs clang 18 or later, tested with 22, "
                        "not ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  endif()
elseif(OCTET_PLATFORM STREQUAL "nvidia")
  set(OCTET_KERNEL_LANGUAGE CUDA)
  set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "NVIDIA GPUs to compile for")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER NAMES nvcc PATHS /usr/local/cuda/bin)
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
else()
  set(OCTET_KERNEL_LANGUAGE HIP)
  enable_language(HIP)
endif()

foreach(language CXX CUDA HIP)
  set(CMAKE_${language}_STANDARD 20)
  set(CMAKE_${language}_STANDARD_REQUIRED ON)
  set(CMAKE_${language}_EXTENSIONS OFF)
endforeach()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# compile.sh says what compilers run with.
set(ccache_default ON)
if(DEFINED ENV{CCACHE_DISABLE})
  set(ccache_default OFF)
endif()
option(OCTET_USE_CCACHE "Compile through ccache where it is installed" ${ccache_default})
set(octet_ccache none)
if(OCTET_USE_CCACHE)
  find_program(OCTET_CCACHE ccache)
  if(OCTET_CCACHE)
    set(octet_ccache ${OCTET_CCACHE})
  endif()
endif()
set(octet_compiler_launcher ${PROJECT_SOURCE_DIR}/cmake/compile.sh ${PROJECT_SOURCE_DIR} ${octet_ccache})
foreach(language CXX ${OCTET_KERNEL_LANGUAGE})
  set(CMAKE_${language}_COMPILER_LAUNCHER ${octet_compiler_launcher})
endforeach()

option(OCTET_UNITY "Compile the files of a folder together, which takes half of the time" ON)

# Precompiled headers keep the first build short.
if(OCTET_PLATFORM STREQUAL "nvidia")
  set(precompile_default OFF)  # without OCTET_UNITY, it also shows which file lacks an include
else()
  set(precompile_default ON)
endif()
option(OCTET_PRECOMPILE "Precompile headers of the libraries that host code uses"
       ${precompile_default})
