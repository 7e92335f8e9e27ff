// What this node can do at best, measured: the numbers that a strategy's speed is held against.
#ifndef OCTET_TOOLS_CEILINGS_H_
#define OCTET_TOOLS_CEILINGS_H_

#include "absl/status/statusor.h"
#include "runtime/node.h"

namespace octet {

// Medians over repetitions; for the slowest rank where ranks differ.
struct Ceilings {
  // GB/s that each GPU stores into all others at once, rows of 14,336 bytes, everything resident;
  // start and end of the kernel included. 0 with one rank.
  double all_to_all_gbps = 0;
  double empty_launch_us = 0;  // device events around a kernel of one thread
  double host_barrier_us = 0;  // Rank::Barrier, all ranks arriving together
  // The last rank's kernel start minus the first's, after Rank::CoordinatedLaunch, on clocks
  // brought to one by ping-pong; the error is at most half of clock_round_trip_us.
  double launch_skew_us = 0;
  double clock_round_trip_us = 0;
};

// Takes a moment and some memory of its own. Not during Run.
absl::StatusOr<Ceilings> MeasureCeilings(Node& node);

}  // namespace octet

#endif  // OCTET_TOOLS_CEILINGS_H_
