// The seam of low_latency's host class, which is compiled with `-include` of this file where ranks
// may be masked: as seam.h for kernels.
#ifndef OCTET_TESTS_FAULTS_LOW_LATENCY_HOST_SEAM_H_
#define OCTET_TESTS_FAULTS_LOW_LATENCY_HOST_SEAM_H_

#include "absl/status/status.h"
#include "kernels/low_latency/layout.h"
#include "kernels/low_latency/low_latency.h"
#include "tests/faults/fault.h"

namespace octet::low_latency {

inline Layout SeamMakeLayout(const EpConfig& config, int num_ranks) {
  Layout layout = MakeLayout(config, num_ranks);
  if (faults::planted.fault == faults::Fault::kSharedPlaces) layout.own_slots = false;
  return layout;
}

}  // namespace octet::low_latency

#define MakeLayout SeamMakeLayout
#define ResetCalls(rank)                                                                      \
  (::octet::faults::planted.fault == ::octet::faults::Fault::kUnmaskGoesOn ? absl::OkStatus() \
                                                                           : ResetCalls(rank))

#endif  // OCTET_TESTS_FAULTS_LOW_LATENCY_HOST_SEAM_H_
