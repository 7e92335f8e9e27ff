# Finds HIP for the amd platform: ROCm as installed, or else headers, device libraries and a link
# stub that tools/setup_rocm.sh unpacks below the source tree's build folder (nothing is installed).
#
#   OCTET_ROCM_PATH   root of the tree: has include/hip and lib, or usr/include/hip and usr/lib
# Sets CMAKE_HIP_* for enable_language(HIP), OCTET_ROCM_INCLUDE and OCTET_ROCM_LIBRARY, and
# OCTET_ROCM_IS_STUB where programs can be linked but not run.

if(EXISTS /opt/rocm/include/hip/hip_runtime.h)
  set(rocm_default /opt/rocm)
else()
  set(rocm_default ${CMAKE_SOURCE_DIR}/build/rocm)
endif()
set(OCTET_ROCM_PATH ${rocm_default} CACHE PATH "ROCm, or the folder that tools/setup_rocm.sh fills")

set(CMAKE_HIP_ARCHITECTURES gfx90a gfx942 gfx950 CACHE STRING "AMD GPUs to compile for")

if(EXISTS ${OCTET_ROCM_PATH}/include/hip/hip_runtime.h)
  set(rocm_root ${OCTET_ROCM_PATH})
  find_program(CMAKE_HIP_COMPILER NAMES amdclang++ clang++
               HINTS ${OCTET_ROCM_PATH}/lib/llvm/bin ${OCTET_ROCM_PATH}/llvm/bin REQUIRED)
else()
  if(NOT EXISTS ${OCTET_ROCM_PATH}/usr/include/rccl/rccl.h)  # unpacked, and by the present script
    message(STATUS "No ROCm in ${OCTET_ROCM_PATH}: unpacking HIP headers and device libraries there")
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup_rocm.sh ${OCTET_ROCM_PATH}
                    RESULT_VARIABLE rocm_setup)
    if(NOT rocm_setup EQUAL 0)
      message(FATAL_ERROR "tools/setup_rocm.sh ${OCTET_ROCM_PATH} failed: ${rocm_setup}. "
                          "Install ROCm 7 and set OCTET_ROCM_PATH to its root.")
    endif()
  endif()
  set(rocm_root ${OCTET_ROCM_PATH}/usr)
  set(OCTET_ROCM_IS_STUB ON)
  find_program(CMAKE_HIP_COMPILER NAMES clang++-22 REQUIRED)
  set(CMAKE_HIP_COMPILER_ROCM_ROOT ${rocm_root})
  file(STRINGS ${OCTET_ROCM_PATH}/flags rocm_flags)
  set(CMAKE_HIP_FLAGS_INIT "--rocm-path=${rocm_root} ${rocm_flags}")
endif()

set(OCTET_ROCM_INCLUDE ${rocm_root}/include)
file(REAL_PATH ${rocm_root}/lib/libamdhip64.so OCTET_ROCM_LIBRARY)
