// Checks, choices and texts of the options of calls over several nodes. Host only.
#ifndef OCTET_KERNELS_NODES_OPTIONS_H_
#define OCTET_KERNELS_NODES_OPTIONS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/nodes/batch.h"
#include "kernels/nodes/kernels.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/net/rails/rail.h"

namespace octet {

// `config`: over all nodes. Returns kInvalidArgument with the reason, or OK. Refuses what the
// intranode strategy refuses for IntranodeConfig, FailurePolicy::kMask, and each combine_order but
// kAuto and kPerNode, which are the same.
absl::Status ValidateHierarchical(const EpConfig& config, const NodesOfRanks& nodes,
                                  int chunk_tokens = 0);

// Returns what RailRows::kAuto stands for with an intranode strategy; `rows` if it is anything
// else.
RailRows ChosenRows(RailRows rows, Strategy strategy);

// Returns how RailOptions::chunk_tokens divides the tokens of a rank.
hierarchical::Chunks ChunksOf(const EpConfig& config, int chunk_tokens);

// Returns the configuration over all nodes with the choices that were made within a node.
EpConfig WithChoices(const EpConfig& config, const EpConfig& intranode);

// Returns what all nodes must agree about, in words.
std::string TextOf(const EpConfig& config, const RailOptions& rails);

// Lets calls within the node, which wait for rails or are waited for, leave them compute units.
// kInvalidArgument if `config` asks for more blocks than remain.
absl::Status LeaveUnits(const Node& node, absl::Span<Rail* const> rails, EpConfig& config);

// Return what crosses with each row of a dispatch, and its bytes: ids, weights and scales.
hierarchical::RecordShape RecordOf(const EpConfig& config, int num_nodes);
size_t RailRecordBytes(const EpConfig& config, int num_nodes);

}  // namespace octet

#endif  // OCTET_KERNELS_NODES_OPTIONS_H_
