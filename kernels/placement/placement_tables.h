// The tables of a placement on the GPUs of a node, and what looks replicas up in them: its own
// kernel, ahead of a dispatch, or another one that is given the table.
#ifndef OCTET_KERNELS_PLACEMENT_PLACEMENT_TABLES_H_
#define OCTET_KERNELS_PLACEMENT_PLACEMENT_TABLES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/base/flag_report.h"
#include "kernels/placement/kernels.h"
#include "octet/domain.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "runtime/memory/node_memory.h"
#include "runtime/node/node_client.h"

namespace octet {

class PlacementTables final : private NodeClient {
 public:
  // A rank looks up the tokens of these ranks.
  enum class Sources { kOwn, kAllRanks };

  struct Options {
    int topk = 0;
    int max_tokens = 0;  // of a call of Translate; 0: it is not called
    Sources sources = Sources::kOwn;
    std::string name = {};  // for reports of failures
  };

  // `placement` is over all ranks of the domain. Not during Run.
  static absl::StatusOr<std::unique_ptr<PlacementTables>> Create(Domain& domain,
                                                                 const Placement& placement,
                                                                 const Options& options);
  ~PlacementTables() override { Unregister(*node_, client_); }
  PlacementTables(const PlacementTables&) = delete;
  PlacementTables& operator=(const PlacementTables&) = delete;

  // Returns where the physical ids of a rank's choices, [num_tokens][topk], will lie in stream
  // order, until the call after the next one. Choices that are no experts are refused as every
  // dispatch does.
  absl::StatusOr<const int32_t*> Translate(Rank& rank, const int32_t* topk_idx, int num_tokens);

  const placement::PlacementTable& of(const Rank& rank) const { return StateOf(rank).table; }

  // A rank's table holds this for a placement.
  struct Contents {
    std::vector<placement::ReplicaRange> ranges;
    std::vector<int32_t> replicas;
    std::vector<int32_t> locals;
  };
  Contents ContentsFor(const Rank& rank, const Placement& placement) const;
  // Where they lie, for a kernel that replaces them in stream order: there is room for any
  // placement of as many experts and slots.
  placement::ReplicaRange* ranges(const Rank& rank) const { return StateOf(rank).ranges.data(); }
  int32_t* replicas(const Rank& rank) const { return StateOf(rank).replicas.data(); }
  // [E] The rank's slot of each expert, or -1.
  int32_t* locals(const Rank& rank) const { return StateOf(rank).locals.data(); }
  // Replaces them and waits until that is done.
  absl::Status Replace(Rank& rank, const Placement& placement);

 private:
  struct RankState {
    absl::Span<placement::ReplicaRange> ranges;
    absl::Span<int32_t> replicas;
    absl::Span<int32_t> locals;
    placement::PlacementTable table;  // of ranges and replicas
    // The physical ids of calls, used in turn: at most two are on their way.
    std::array<int32_t*, 2> ids = {};
    size_t next = 0;
  };

  PlacementTables(Domain& domain, const Options& options);
  RankState& StateOf(const Rank& rank) { return states_[static_cast<size_t>(rank.rank())]; }
  const RankState& StateOf(const Rank& rank) const {
    return states_[static_cast<size_t>(rank.rank())];
  }
  absl::Status InitRank(Rank& rank, const Placement& placement);

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override {
    return report_.Describe(rank, record);
  }
  absl::Status Recover(Rank& /*rank*/) override { return absl::OkStatus(); }

  const std::shared_ptr<Node> node_;
  const int first_rank_;  // of this node, among those of all nodes
  const Options options_;
  const FlagReport report_;
  NodeMemory memory_;
  std::vector<RankState> states_;  // by local rank
  const uint32_t client_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_PLACEMENT_PLACEMENT_TABLES_H_
