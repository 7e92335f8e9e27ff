// The faults of placements in a test program, chosen at run time. tests/faults/placement_seam.h
// says how they get into the kernels, and into what enqueues them.
#ifndef OCTET_TESTS_FAULTS_PLACEMENT_FAULT_H_
#define OCTET_TESTS_FAULTS_PLACEMENT_FAULT_H_

namespace octet::faults {

enum class PlacementFault {
  kNone,
  kTwoReplicasTakeAToken,  // instead of expert 1, another replica of expert 0
  kOneReplicaTakesAll,     // the same for every token
  kShareOfAnotherRank,     // what the next rank's tokens would go to
  kBehindTheLast,          // the replica after those of the expert
  kCopyLate,               // copies take long, and a switch does not wait for the rank's own
  kSwitchAlone,            // a rank switches without waiting for the others
};

// Set by the host while no kernel runs; read by kernels and host.
inline PlacementFault planted_placement = PlacementFault::kNone;

}  // namespace octet::faults

#endif  // OCTET_TESTS_FAULTS_PLACEMENT_FAULT_H_
