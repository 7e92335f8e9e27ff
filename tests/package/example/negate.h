// The experts of this program, out = -x, and its memory on the GPUs. Compiled by nvcc (negate.cu)
// or as HIP (negate.hip); programs that include this need neither CUDA's nor HIP's headers.
#ifndef OCTET_TESTS_PACKAGE_EXAMPLE_NEGATE_H_
#define OCTET_TESTS_PACKAGE_EXAMPLE_NEGATE_H_

#include <octet/gpu.h>

#include <cstddef>
#include <cstdint>

// Functions return what went wrong, null if nothing did.
using Error = const char*;

// Both [*num_rows][row_elements] of 16-bit floats, `num_rows` on the GPU.
Error LaunchNegate(const void* x, const int32_t* num_rows, int row_elements, void* out,
                   octet::GpuStream stream);

// The same of 8-bit floats, whose `scales` are of `scale_group` columns each: [*num_rows] times as
// many as a row has. `out` is of bf16.
Error LaunchNegateFp8(const void* x, const void* scales, const int32_t* num_rows, int row_elements,
                      int scale_group, void* out, octet::GpuStream stream);

// Memory of the current GPU with `bytes` copied from `host`.
Error NewOnGpu(const void* host, size_t bytes, void** gpu);
Error CopyFromGpu(void* host, const void* gpu, size_t bytes);
void FreeOnGpu(void* gpu);

#endif  // OCTET_TESTS_PACKAGE_EXAMPLE_NEGATE_H_
