// Dispatch and combine over several nodes: tokens cross to a node once, on the rail of their rank,
// and an ExpertParallel of that node distributes them there.
//
// P nodes have R ranks each; rank r of node n has the global number g = n·R + r and owns experts
// g·L .. (g+1)·L-1, L = E/(P·R). Rank r exchanges rows with rank r of the other nodes only.
//
//   Dispatch  A token that has chosen experts of a node is sent there once: its row (and scales),
//             ids of that node's experts, renumbered to 0 .. E/P-1, and their weights. The
//             intranode dispatch then runs over the rank's batch: the rank's own tokens, then those
//             from each other node in ascending order, each node's in token order. In chunks: so
//             many from each node, then as many again, while the dispatch runs.
//   Combine   The intranode combine makes one row of each token of the batch, rounded to the dtype;
//             these rows return on the rail. y[t] is their sum in float32: acc = +0, acc = acc +
//             row for the token's nodes ascending, acc = acc + bias, rounded to the dtype.
//             This is CombineOrder::kPerNode.
//
// It is not one of the registry's strategies: it has no protocol, heap or tuning of its own, needs
// rails to be made, and works with every strategy inside.
#ifndef OCTET_KERNELS_NODES_HIERARCHICAL_H_
#define OCTET_KERNELS_NODES_HIERARCHICAL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ep/ep_calls.h"
#include "octet/domain.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"

namespace octet {

// MakeCalls for a domain with rails.
absl::StatusOr<std::unique_ptr<EpCalls>> MakeHierarchical(Domain& domain, const EpConfig& config,
                                                          const ExpertParallelOptions& options);

}  // namespace octet

#endif  // OCTET_KERNELS_NODES_HIERARCHICAL_H_
