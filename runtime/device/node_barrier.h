// A barrier between the GPUs of a node, on the GPUs. Plain records and the launcher, for host code;
// node_barrier_device.h has the barrier itself for use inside other kernels.
#ifndef OCTET_RUNTIME_DEVICE_NODE_BARRIER_H_
#define OCTET_RUNTIME_DEVICE_NODE_BARRIER_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/peers.h"
#include "runtime/device/failure_record.h"

namespace octet::device {

// In each GPU's memory, zero at the start and again on all GPUs after a failure.
struct NodeBarrierState {
  uint64_t arrived[kMaxRanks];  // [peer]: the last round that peer has come to; written by the peer
  uint64_t round;               // this GPU's own last round
};

struct NodeBarrierParams {
  NodeBarrierState* state[kMaxRanks];  // of each rank
  int rank;
  int num_ranks;
  FailurePort port;
  uint32_t site;  // of the wait, in the numbering of port.client
};

// One barrier on `stream`: what the stream holds afterwards starts when all ranks' streams have
// come to the same round. A rank that does not come ends in a failure record.
hipError_t LaunchNodeBarrier(const NodeBarrierParams& params, hipStream_t stream);

// Loads the kernel on the current device (load_kernel.h).
hipError_t LoadNodeBarrier();

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_NODE_BARRIER_H_
