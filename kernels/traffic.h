// The strategies' accounts of what they put on the wire.
#ifndef OCTET_KERNELS_TRAFFIC_H_
#define OCTET_KERNELS_TRAFFIC_H_

#include <cstdint>

#include "absl/types/span.h"
#include "octet/expert_parallel.h"

namespace octet {

// What a strategy stores into other ranks in a call, in bytes.
struct WireFormat {
  bool once_per_rank =
      false;        // a row for each token and rank that it goes to; else for each choice
  int64_t row = 0;  // payload
  int64_t beside_row = 0;
  int64_t beside_choice = 0;
  int64_t to_peer = 0;
};

// What `rank` of `num_ranks` sends in a call with this routing ([T][K]).
Traffic TrafficOf(const WireFormat& format, const EpConfig& config, int num_ranks, int rank,
                  absl::Span<const int32_t> topk_idx);

}  // namespace octet

#endif  // OCTET_KERNELS_TRAFFIC_H_
