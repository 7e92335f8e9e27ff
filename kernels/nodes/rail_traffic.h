// Counts the bytes that cross a rail in a call over several nodes. Host only.
#ifndef OCTET_KERNELS_NODES_RAIL_TRAFFIC_H_
#define OCTET_KERNELS_NODES_RAIL_TRAFFIC_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"

namespace octet::hierarchical {

// Counts those of one rank. `topk_idx`: the choices of its tokens.
class RailTraffic {
 public:
  // `node`: the rank's own. `counted`: with RailRows::kCounted, else with kBlocks. The
  // configuration, which is that of all nodes, must outlive this object.
  RailTraffic(const EpConfig& config, int num_nodes, int node, bool counted)
      : config_(config), num_nodes_(num_nodes), node_(node), counted_(counted) {}

  Traffic OfDispatch(absl::Span<const int32_t> topk_idx) const;
  Traffic OfCombine(absl::Span<const int32_t> topk_idx) const;

 private:
  Traffic OfRows(absl::Span<const int32_t> topk_idx, size_t row_bytes) const;

  const EpConfig& config_;
  const int num_nodes_;
  const int node_;
  const bool counted_;
};

}  // namespace octet::hierarchical

#endif  // OCTET_KERNELS_NODES_RAIL_TRAFFIC_H_
