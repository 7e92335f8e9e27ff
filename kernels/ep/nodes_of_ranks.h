// Ranks of several nodes, and what a configuration over all of them is within one of them.
#ifndef OCTET_KERNELS_EP_NODES_OF_RANKS_H_
#define OCTET_KERNELS_EP_NODES_OF_RANKS_H_

#include <algorithm>

#include "kernels/ep/physical.h"
#include "octet/domain.h"
#include "octet/ep_config.h"

namespace octet {

struct NodesOfRanks {
  int num_nodes = 1;  // P
  int ranks_per_node = 1;
  // The order in which the outputs of one node's experts are added; kPerNode adds those sums.
  CombineOrder intranode_order = CombineOrder::kAuto;
};

inline NodesOfRanks NodesOf(const Domain& domain, CombineOrder intranode_order) {
  return {.num_nodes = domain.num_nodes(),
          .ranks_per_node = domain.ranks_per_node(),
          .intranode_order = intranode_order};
}

// Returns the configuration of the ExpertParallel of each node. It has E/P experts (with a
// placement, its ranks' slots), up to P·M
// tokens of a rank, and as many choices of a token as it can have among a node's experts.
inline EpConfig IntranodeConfig(const EpConfig& config, const NodesOfRanks& nodes) {
  EpConfig intranode = PhysicalConfig(config);
  intranode.num_experts /= nodes.num_nodes;
  intranode.topk = std::min(config.topk, intranode.num_experts);
  intranode.max_tokens_per_rank *= nodes.num_nodes;
  intranode.combine_order = nodes.intranode_order;
  return intranode;
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_NODES_OF_RANKS_H_
