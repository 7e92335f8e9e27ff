// Moves experts between the ranks of a node and switches to another placement (moves.hip): host
// side.
//
// Placements have numbers: 0 is the one that the layer begins with, n the one of switch n. Each
// rank counts by itself, since one may be ahead of the others on the host.
#ifndef OCTET_KERNELS_PLACEMENT_EXPERT_MOVES_H_
#define OCTET_KERNELS_PLACEMENT_EXPERT_MOVES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/placement/kernels.h"
#include "kernels/placement/placement_tables.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/mutex.h"
#include "runtime/failure/flag_table.h"
#include "runtime/gpu/side_stream.h"
#include "runtime/memory/node_memory.h"
#include "runtime/node/node_client.h"

namespace octet {

class ExpertMoves final : private NodeClient {
 public:
  // The arrays to move, at most kMostSlotArrays, lie in the heap's cached memory.
  struct Weights {
    const SymmetricHeap* heap = nullptr;
    std::vector<placement::SlotArray> arrays = {};
  };

  // `tables` hold `first`. They and the heap must outlive it. Not during Run.
  static absl::StatusOr<std::unique_ptr<ExpertMoves>> Create(Node& node, const Placement& first,
                                                             PlacementTables& tables,
                                                             const Weights& weights,
                                                             std::string name);
  ~ExpertMoves() override;
  ExpertMoves(const ExpertMoves&) = delete;
  ExpertMoves& operator=(const ExpertMoves&) = delete;

  // MoeLayer::Prepare, Apply and PlacementOf.
  absl::Status Prepare(Rank& rank, const Placement& wanted, int max_blocks);
  absl::Status Apply(Rank& rank);
  Placement PlacementOf(const Rank& rank) const;

  // Ends the rank's copies, and forgets what they were for. Waits. All ranks call it together, when
  // nothing else runs.
  absl::Status Abandon(Rank& rank);

 private:
  // A switch reads this from pinned memory.
  struct Staged {
    absl::Span<placement::ReplicaRange> ranges;
    absl::Span<int32_t> replicas;
    absl::Span<int32_t> locals;
    absl::Span<placement::ExpertCopy> copies;
    size_t num_replicas = 0;
  };
  struct RankState {
    SideStream side;
    uint64_t number = 0;  // of the placement by which the next call goes
    bool prepared = false;
    std::array<Staged, 2> staged;   // of a switch, at its number modulo 2
    absl::Span<uint64_t> done;      // SwitchParams::done
    std::vector<uint64_t> arrived;  // a copy of SwitchState::arrived
  };

  ExpertMoves(Node& node, PlacementTables& tables, const Weights& weights, std::string name);
  absl::Status InitRank(Rank& rank, const Placement& first);
  RankState& StateOf(const Rank& rank) { return states_[static_cast<size_t>(rank.rank())]; }
  const RankState& StateOf(const Rank& rank) const {
    return states_[static_cast<size_t>(rank.rank())];
  }
  Placement PlacementNumber(uint64_t number) const;
  // Makes `placement` that of a number, or compares it with what another rank has made it.
  absl::Status Agree(const Rank& rank, uint64_t number, const Placement& placement);
  // Fills what the switch to `next` needs.
  static absl::Status Stage(const PlacementTables::Contents& contents,
                            absl::Span<const placement::ExpertCopy> copies, Staged& staged);
  absl::Status EnqueueCopies(const Rank& rank, RankState& mine,
                             absl::Span<const placement::ExpertCopy> copies, int max_blocks);
  absl::Status EnqueueByEngine(hipStream_t stream, const device::PeerBases& peers,
                               absl::Span<const placement::ExpertCopy> copies) const;
  // Makes later work on rank.stream() wait for the rank's own copies.
  static absl::Status AwaitCopies(const Rank& rank, RankState& mine) {
    return mine.side.Join(rank);
  }
  // Copies SwitchState::arrived of the rank to the host, and waits.
  absl::Status ReadArrived(Rank& rank);

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;
  absl::Status CopyFlags(Rank& rank) override;
  std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits) override;
  absl::Status Recover(Rank& rank) override;

  const std::shared_ptr<Node> node_;
  PlacementTables& tables_;
  const Weights weights_;
  std::unique_ptr<SymmetricHeap> heap_;  // SwitchState
  NodeMemory memory_;
  std::vector<RankState> states_;
  bool ready_ = false;  // all ranks have what they need
  mutable Mutex mutex_;
  // By number: those that may still be in force, or come to be.
  std::map<uint64_t, Placement> placements_ ABSL_GUARDED_BY(mutex_);
  const uint32_t client_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_PLACEMENT_EXPERT_MOVES_H_
