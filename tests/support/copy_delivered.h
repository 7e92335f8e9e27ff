// Copies what a dispatch has delivered, in stream order.
#ifndef OCTET_TESTS_SUPPORT_COPY_DELIVERED_H_
#define OCTET_TESTS_SUPPORT_COPY_DELIVERED_H_

#include <hip/hip_runtime.h>

#include <cstddef>

#include "runtime/device/failure_record.h"

namespace octet {

struct CopyDeliveredParams {
  device::FailurePort port;
  const void* from;
  void* to;
  size_t bytes;  // a multiple of 16
};

// Copies nothing if the rank has failed: its dispatch may have ended early, and peers may still
// store rows.
hipError_t LaunchCopyDelivered(const CopyDeliveredParams& params, hipStream_t stream);
// Must be called on each GPU before kernels wait for each other.
hipError_t LoadCopyDelivered();

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_COPY_DELIVERED_H_
