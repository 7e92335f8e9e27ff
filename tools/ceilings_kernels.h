// The kernels behind tools/ceilings.h.
#ifndef OCTET_TOOLS_CEILINGS_KERNELS_H_
#define OCTET_TOOLS_CEILINGS_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/launch_shape.h"
#include "runtime/device/peers.h"

namespace octet {

// Every wave stores rows of `row_vecs` vectors to the peers in turn: to the region of this rank in
// the peer's heap, `rows_per_peer` rows each.
struct AllToAllParams {
  device::PeerBases peers;
  const void* source;  // [rows_per_peer][row_vecs] vectors
  int row_vecs;
  int rows_per_peer;
};
hipError_t LaunchAllToAll(const AllToAllParams& params, const LaunchShape& shape,
                          hipStream_t stream);

// Writes the GPU's clock when it starts.
hipError_t LaunchReadClock(uint64_t* clock, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TOOLS_CEILINGS_KERNELS_H_
