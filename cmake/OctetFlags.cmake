# Compiler flags of the whole project.
#
#   OCTET_SANITIZE    emulation only: sanitizers, "address,undefined" or "thread"; or "weak-memory",
#                     the emulation's own model of stores that become visible late
#   OCTET_HOST_ARCH   -march of host code; the emulated kernels are host code, too

set(OCTET_SANITIZE "" CACHE STRING "Sanitizers of an emulation build")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(host_arch x86-64-v3)  # F16C: conversions of fp16 are instructions instead of calls
endif()
set(OCTET_HOST_ARCH "${host_arch}" CACHE STRING "-march of host code; empty: the compiler's")

# Results are compared to the bit between platforms, so nothing may contract a*b+c to one rounding.
set(octet_cxx -ffp-contract=off)
# Atomics are what the kernels say. The compiler would make loops over the lanes of some of them, to
# add what they add first; those of the kernels are of one lane, or meant to be of each. tests/isa
# compiles with these, too.
set(octet_hip_code -ffp-contract=off -mllvm -amdgpu-atomic-optimizer-strategy=None)
set(octet_hip ${octet_hip_code})
set(octet_cuda --fmad=false -Xcompiler=-ffp-contract=off -lineinfo)

# Programs and the shared library, which sanitizers do not have, are linked from the same objects.
# Nothing of Octet is to be replaced at load time, so that GCC may inline as it would in a program, and
# what compilers make for position-independent programs will do for kernels of GPUs. With weak memory
# no such library is built, but what is not a kernel is then compiled as without it, and only once
# where there is ccache.
if(NOT OCTET_SANITIZE OR OCTET_SANITIZE STREQUAL "weak-memory")
  set(position_independent -fPIC -fno-semantic-interposition)
  list(APPEND octet_cxx ${position_independent})
  if(OCTET_PLATFORM STREQUAL "emulation")
    list(APPEND octet_hip ${position_independent})
  endif()
endif()

set(warnings -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual -Wundef)
list(APPEND octet_cxx ${warnings})
list(APPEND octet_hip ${warnings} -Wshadow)
list(APPEND octet_cuda -Xcompiler=-Wall,-Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC sees uninitialized ghosts in absl::StatusOr and loose ends in GoogleTest's macros, and wants
  # designated initializers to be complete. Files that are compiled together look like headers to it,
  # in which no class may have a member from an unnamed namespace. Its -Wshadow, left out, minds a
  # macro's local inside a lambda in the same macro.
  list(APPEND octet_cxx -Wno-maybe-uninitialized -Wno-dangling-else -Wno-missing-field-initializers
                        -Wno-subobject-linkage)
  list(APPEND octet_cuda -Xcompiler=-Wno-missing-field-initializers)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND octet_cxx -Wno-dangling-reference)  # takes elements of a temporary Span for dangling
  endif()
else()
  list(APPEND octet_cxx -Wshadow)
endif()
if(OCTET_WERROR)
  list(APPEND octet_cxx -Werror)
  list(APPEND octet_hip -Werror)
  list(APPEND octet_cuda -Werror=all-warnings -Xcompiler=-Werror)
endif()

if(OCTET_HOST_ARCH)
  list(APPEND octet_cxx -march=${OCTET_HOST_ARCH})
endif()
if(OCTET_PLATFORM STREQUAL "emulation")
  # For octet_add_test(): what one call frees, the next one takes without asking the kernel.
  set(OCTET_TEST_ENVIRONMENT
      GLIBC_TUNABLES=glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=1048576)
  if(OCTET_SANITIZE AND NOT OCTET_SANITIZE STREQUAL "weak-memory")
    list(APPEND octet_cxx -fsanitize=${OCTET_SANITIZE} -fno-sanitize-recover=all
         -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS)
    add_link_options(-fsanitize=${OCTET_SANITIZE})
    if(OCTET_SANITIZE MATCHES "address")
      set(OCTET_FUZZ ON)  # tests/fuzz: without AddressSanitizer libFuzzer would find little
    endif()
    # For octet_add_test(). Fibers and fake stacks do not go together.
    find_program(OCTET_SYMBOLIZER NAMES llvm-symbolizer-22 llvm-symbolizer)
    set(symbolizer external_symbolizer_path=${OCTET_SYMBOLIZER})
    set(OCTET_TEST_ENVIRONMENT
        ASAN_OPTIONS=detect_stack_use_after_return=0:${symbolizer}
        UBSAN_OPTIONS=print_stacktrace=1:${symbolizer}
        TSAN_OPTIONS=second_deadlock_stack=1:${symbolizer})
  endif()
elseif(OCTET_SANITIZE)
  message(FATAL_ERROR "OCTET_SANITIZE needs OCTET_PLATFORM=emulation")
endif()

# Links a program in a third of the time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld OCTET_HAS_LLD)
  if(OCTET_HAS_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# What a file with kernels cannot do without, also in the projects of users: OctetKernels.cmake.
set(OCTET_KERNEL_OPTIONS)
if(OCTET_PLATFORM STREQUAL "emulation")
  # Emulated TLS is what makes __shared__ one object per block. It must not reach other files:
  # libstdc++'s std::call_once passes its callable in a thread_local of its own.
  list(APPEND OCTET_KERNEL_OPTIONS -femulated-tls)
  # Kernels unroll loops to keep arrays in a GPU's registers. On a CPU that would be half of the time
  # that compiling them takes.
  list(APPEND OCTET_KERNEL_OPTIONS -mllvm -pragma-unroll-threshold=100 -Wno-pass-failed)
  if(OCTET_SANITIZE STREQUAL "weak-memory")
    # Kernels tell of their plain accesses by calls that ThreadSanitizer's library takes elsewhere;
    # here the emulation does (weak_memory_hooks.cc), and nothing is linked with that flag.
    list(APPEND OCTET_KERNEL_OPTIONS -fsanitize=thread -mllvm -tsan-instrument-atomics=0
         -mllvm -tsan-instrument-read-before-write=1)
  endif()
  if(OCTET_SANITIZE MATCHES "thread|weak-memory")
    # ThreadSanitizer keeps one call stack for all lanes of a wave; without it a report shows the
    # place of the access and what is inlined around it, which is right.
    list(APPEND OCTET_KERNEL_OPTIONS -mllvm -tsan-instrument-func-entry-exit=0)
  endif()
elseif(OCTET_PLATFORM STREQUAL "nvidia")
  list(APPEND OCTET_KERNEL_OPTIONS --expt-relaxed-constexpr)
endif()

add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${octet_cxx}>"
                    "$<$<COMPILE_LANGUAGE:CUDA>:${octet_cuda}>"
                    "$<$<COMPILE_LANGUAGE:HIP>:${octet_hip}>")
