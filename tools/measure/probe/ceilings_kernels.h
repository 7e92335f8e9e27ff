// The kernels of tools/measure/probe/link_test.h and tools/measure/probe/latency_test.h.
#ifndef OCTET_TOOLS_MEASURE_PROBE_CEILINGS_KERNELS_H_
#define OCTET_TOOLS_MEASURE_PROBE_CEILINGS_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/peers.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/launch_shape.h"
#include "runtime/device/node_barrier.h"

namespace octet {

// The rows that this rank moves: row i of each pair in turn.
struct MoveRowsParams {
  const char* from[kMaxRanks];  // contiguous rows
  char* to[kMaxRanks];
  int num_pairs;
  int rows_per_pair;
  int row_bytes;
};

// Moves rows by loads and stores of whole waves.
hipError_t LaunchMoveRows(const MoveRowsParams& params, int blocks, int wave_size,
                          hipStream_t stream);

// Moves rows by bulk copies through shared memory. Returns hipErrorInvalidValue if rows are too
// long for it.
hipError_t LaunchMoveRowsInBulk(const MoveRowsParams& params, int blocks, int wave_size,
                                hipStream_t stream);

// Writes the GPU's clock at the start of the kernel.
hipError_t LaunchReadClock(uint64_t* clock, hipStream_t stream);

// Two GPUs send a word back and forth, `rounds` times from `first` on; `call` says who begins.
struct PingPongParams {
  uint64_t* mine;
  uint64_t* theirs;
  uint64_t first;
  uint32_t rounds;
  bool call;
  int peer;
  device::FailurePort port;
  uint32_t site;
};
hipError_t LaunchPingPong(const PingPongParams& params, hipStream_t stream);

// Runs `rounds` barriers of the GPUs in one kernel of one block on each.
hipError_t LaunchNodeBarriers(const device::NodeBarrierParams& params, uint32_t rounds,
                              hipStream_t stream);

// Load the kernels of each test on the current device (runtime/device/load_kernel.h).
hipError_t LoadLinkKernels();
hipError_t LoadLatencyKernels();

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_CEILINGS_KERNELS_H_
