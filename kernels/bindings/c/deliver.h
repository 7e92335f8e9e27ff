// The kernels of the functional calls: octet/c/functional.h.
#ifndef OCTET_KERNELS_BINDINGS_C_DELIVER_H_
#define OCTET_KERNELS_BINDINGS_C_DELIVER_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/launch_shape.h"

namespace octet::c {

// Names what a dispatch has received, and where that is delivered (nullptr: nowhere). The number of
// rows is expert_offsets[num_local_experts].
struct DeliverParams {
  const void* x;
  const int32_t* expert_counts;
  const int32_t* expert_offsets;
  const void* sources;  // RowSource
  const float* row_weights;
  void* to_x;
  int32_t* to_expert_counts;
  int32_t* to_expert_offsets;
  void* to_sources;
  float* to_row_weights;
  float* to_ticket;
  uint32_t* counter;  // of dispatches; the next number becomes the ticket
  int num_local_experts;
  int max_rows;
  int row_vecs;  // 16-byte vectors of a row of x
  bool zero_rest;
};

// Load the kernels on the current device.
hipError_t LoadDeliver();
hipError_t LaunchDeliver(const DeliverParams& params, const LaunchShape& shape, hipStream_t stream);
// Sets *wrong, in host memory, unless `ticket` is that of number *counter.
hipError_t LaunchCheckTicket(const float* ticket, const uint32_t* counter, uint32_t* wrong,
                             hipStream_t stream);

}  // namespace octet::c

#endif  // OCTET_KERNELS_BINDINGS_C_DELIVER_H_
