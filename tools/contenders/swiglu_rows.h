// The kernel between the two products of a contender's experts.
#ifndef OCTET_TOOLS_CONTENDERS_SWIGLU_ROWS_H_
#define OCTET_TOOLS_CONTENDERS_SWIGLU_ROWS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/launch_shape.h"

namespace octet {

// h = silu(gate) · up, in float32 and rounded to the dtype.
struct SwiGluRows {
  const void* gate_up;  // [rows][2 · I], gate and up in turn, eight at a time
  void* h;              // [rows][I]
  int64_t rows;
  int row_vecs;  // 16-byte vectors of a row of h
};

// Load the kernel on the current device, and enqueue it, for rows of fp16 or of bf16.
hipError_t LoadSwiGluRows(bool fp16);
hipError_t LaunchSwiGluRows(const SwiGluRows& params, bool fp16, const LaunchShape& shape,
                            hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_SWIGLU_ROWS_H_
