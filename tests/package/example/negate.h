// The experts of this program: out = -x.
#ifndef OCTET_TESTS_PACKAGE_NEGATE_H_
#define OCTET_TESTS_PACKAGE_NEGATE_H_

#include <hip/hip_runtime.h>

#include <cstdint>

// Both [*num_rows][row_elements] of 16-bit floats, `num_rows` on the GPU.
hipError_t LaunchNegate(const void* x, const int32_t* num_rows, int row_elements, void* out,
                        hipStream_t stream);

// The same of 8-bit floats, whose `scales` are of `scale_group` columns each: [*num_rows] times as
// many as a row has. `out` is of bf16.
hipError_t LaunchNegateFp8(const void* x, const void* scales, const int32_t* num_rows,
                           int row_elements, int scale_group, void* out, hipStream_t stream);

#endif  // OCTET_TESTS_PACKAGE_NEGATE_H_
