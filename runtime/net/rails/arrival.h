// A kernel that waits until the bytes of all other nodes have arrived in the host's memory.
#ifndef OCTET_RUNTIME_NET_RAILS_ARRIVAL_H_
#define OCTET_RUNTIME_NET_RAILS_ARRIVAL_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/failure_record.h"

namespace octet::device {

// The words lie in pinned host memory, which the host writes.
struct ArrivalParams {
  FailurePort port;
  uint32_t site;            // of the wait, in the numbering of port.client
  const uint64_t* posted;   // the number of the exchange that the stream has come to
  const uint64_t* arrived;  // [node]: the last exchange of which the node's bytes have arrived
  int num_nodes;
  int node;  // this one, for which nobody waits
};

// Enqueues the wait. If a node's bytes do not arrive, a failure record without a peer results whose
// index is the node.
hipError_t LaunchAwaitArrivals(const ArrivalParams& params, hipStream_t stream);

// Loads the kernel on the current device (load_kernel.h).
hipError_t LoadAwaitArrivals();

}  // namespace octet::device

#endif  // OCTET_RUNTIME_NET_RAILS_ARRIVAL_H_
