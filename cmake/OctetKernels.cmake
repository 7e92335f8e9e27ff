# For this project and, installed beside octetConfig.cmake, for those of its users.

# Ends the configuration with a sentence where the compilers in use cannot compile kernels.
function(octet_check_kernel_compiler)
  if(OCTET_KERNEL_LANGUAGE STREQUAL "CXX")
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR
              "octet_mark_kernels: kernels for emulated GPUs need clang 18 or later as the C++ "
              "compiler, not ${CMAKE_CXX_COMPILER_ID} (${CMAKE_CXX_COMPILER}). Set "
              "CMAKE_CXX_COMPILER=clang++-22. Projects without kernels can use any compiler.")
    endif()
    return()
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT OCTET_KERNEL_LANGUAGE IN_LIST languages)
    message(FATAL_ERROR "octet_mark_kernels: call enable_language(${OCTET_KERNEL_LANGUAGE}) first, "
                        "and find_package(octet) before that")
  endif()
  if(OCTET_KERNEL_LANGUAGE STREQUAL "CUDA")
    if(DEFINED CMAKE_CUDA_STANDARD AND CMAKE_CUDA_STANDARD LESS 20)
      message(FATAL_ERROR "octet_mark_kernels: CMAKE_CUDA_STANDARD is ${CMAKE_CUDA_STANDARD}; "
                          "Octet's headers need 20")
    endif()
    if(OCTET_CUDA_ARCHITECTURES AND
       NOT "${CMAKE_CUDA_ARCHITECTURES}" STREQUAL "${OCTET_CUDA_ARCHITECTURES}")
      message(WARNING "octet_mark_kernels: CMAKE_CUDA_ARCHITECTURES is "
                      "'${CMAKE_CUDA_ARCHITECTURES}', but this Octet was compiled for "
                      "'${OCTET_CUDA_ARCHITECTURES}'. find_package(octet) sets it when it comes "
                      "before enable_language(CUDA).")
    endif()
  endif()
endfunction()

# octet_mark_kernels(<file>...): marks files with kernels, of the current folder, for the platform's
# compiler: HIP's on amd and on emulated GPUs, CUDA's on nvidia. The language
# ${OCTET_KERNEL_LANGUAGE} must be enabled.
function(octet_mark_kernels)
  octet_check_kernel_compiler()
  set(options ${OCTET_KERNEL_OPTIONS})
  if(OCTET_KERNEL_LANGUAGE STREQUAL "CUDA" AND NOT DEFINED CMAKE_CUDA_STANDARD)
    # As a plain option, because CMake 3.25.1 does not know that nvcc has C++20.
    list(APPEND options -std=c++20)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ${OCTET_KERNEL_LANGUAGE}
                              COMPILE_OPTIONS "${options}"
                              INCLUDE_DIRECTORIES "${OCTET_KERNEL_INCLUDE_DIRECTORIES}"
                              SKIP_PRECOMPILE_HEADERS ON)
endfunction()
