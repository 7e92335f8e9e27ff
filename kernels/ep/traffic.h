// Accounts of what the strategies put on the wire.
#ifndef OCTET_KERNELS_EP_TRAFFIC_H_
#define OCTET_KERNELS_EP_TRAFFIC_H_

#include <cstdint>

#include "absl/types/span.h"
#include "octet/expert_parallel.h"

namespace octet {

// The bytes that a strategy stores into other ranks in a call.
struct WireFormat {
  bool once_per_rank =
      false;        // one row for each token and destination rank; else one for each choice
  int64_t row = 0;  // payload
  int64_t beside_row = 0;
  int64_t beside_choice = 0;
  int64_t to_peer = 0;
};

// Returns what `rank` of `num_ranks` sends in a call with this routing ([T][K]).
Traffic TrafficOf(const WireFormat& format, const EpConfig& config, int num_ranks, int rank,
                  absl::Span<const int32_t> topk_idx);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_TRAFFIC_H_
