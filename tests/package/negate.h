// The experts of this program: out = -x.
#ifndef OCTET_TESTS_PACKAGE_NEGATE_H_
#define OCTET_TESTS_PACKAGE_NEGATE_H_

#include <hip/hip_runtime.h>

#include <cstdint>

// Both [*num_rows][row_elements] of fp16, `num_rows` on the GPU.
hipError_t LaunchNegate(const void* x, const int32_t* num_rows, int row_elements, void* out,
                        hipStream_t stream);

#endif  // OCTET_TESTS_PACKAGE_NEGATE_H_
