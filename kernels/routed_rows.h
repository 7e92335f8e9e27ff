// How many rows a routing is, for the strategies' accounts of their traffic.
#ifndef OCTET_KERNELS_ROUTED_ROWS_H_
#define OCTET_KERNELS_ROUTED_ROWS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace octet {

struct RoutedRows {
  int64_t all = 0;
  int64_t remote = 0;  // of those, to other ranks than `rank`
};

// A row for each choice of `topk_idx` ([T][K]) that is not dropped.
RoutedRows CountChoices(absl::Span<const int32_t> topk_idx, int num_local_experts, int rank);

// A row for each token and rank that the token has chosen experts of.
RoutedRows CountOncePerRank(absl::Span<const int32_t> topk_idx, int topk, int num_local_experts,
                            int rank);

}  // namespace octet

#endif  // OCTET_KERNELS_ROUTED_ROWS_H_
