// A barrier between the GPUs of a node. Plain records and the launcher, for host code;
// node_barrier_device.h has the barrier for use inside kernels.
#ifndef OCTET_RUNTIME_DEVICE_NODE_BARRIER_H_
#define OCTET_RUNTIME_DEVICE_NODE_BARRIER_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/peers.h"
#include "runtime/device/failure_record.h"

namespace octet::device {

// Lies in each GPU's memory. Zero at the start, and reset to zero on all GPUs after a failure.
struct NodeBarrierState {
  uint64_t arrived[kMaxRanks];  // [peer]: the peer's last round; written by the peer
  uint64_t round;               // this GPU's own last round
};

struct NodeBarrierParams {
  NodeBarrierState* state[kMaxRanks];  // by rank
  int rank;
  int num_ranks;
  FailurePort port;
  uint32_t site;  // of the wait, in the numbering of port.client
};

// Enqueues one barrier on `stream`: later work on the stream starts when all ranks' streams have
// reached the same round. If a rank does not arrive, a failure record results.
hipError_t LaunchNodeBarrier(const NodeBarrierParams& params, hipStream_t stream);

// Loads the kernel on the current device (load_kernel.h).
hipError_t LoadNodeBarrier();

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_NODE_BARRIER_H_
