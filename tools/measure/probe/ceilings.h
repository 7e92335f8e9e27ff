// The best that this node can do, measured: the reference for a strategy's speed. link_test.h and
// latency_test.h measure single figures; these are the figures that a report names.
#ifndef OCTET_TOOLS_MEASURE_PROBE_CEILINGS_H_
#define OCTET_TOOLS_MEASURE_PROBE_CEILINGS_H_

#include "absl/status/statusor.h"
#include "octet/node.h"

namespace octet {

// Medians over repetitions; if ranks differ, of the slowest rank. Rates are in GB/s that each GPU
// sends to all others at once, in rows of 14,336 bytes, with everything resident, including the
// start and end of the kernel; 0 with one rank.
struct Ceilings {
  double all_to_all_gbps = 0;  // stores by waves, two blocks for each compute unit
  double loads_gbps = 0;       // loads by waves, as many blocks
  double bulk_gbps = 0;        // bulk copies from shared memory, one block for each compute unit
  double copy_engine_gbps = 0;
  double pair_gbps = 0;            // only stores of rank 0 to rank 1
  double empty_launch_us = 0;      // device events around a kernel of one thread
  double host_barrier_us = 0;      // Rank::Barrier, all ranks arriving together
  double node_barrier_us = 0;      // of all GPUs, inside a kernel
  double flag_round_trip_us = 0;   // rank 0 to rank 1 and back, inside a kernel; 0 with one rank
  double launch_skew_us = 0;       // LatencyTest::LaunchSkew
  double clock_round_trip_us = 0;  // its error is at most half of it
};

// Takes a moment and some memory of its own. Not during Run.
absl::StatusOr<Ceilings> MeasureCeilings(Node& node);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_CEILINGS_H_
