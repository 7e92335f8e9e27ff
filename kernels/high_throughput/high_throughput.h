// The `high_throughput` strategy: for thousands of tokens a rank. The layout is worked out on the
// GPUs first; then a token crosses the link once for each rank that it has chosen, straight to its
// place, and comes home the same way.
//
// Arithmetic order of combine: per_rank or flat (kernels/reference.h), bitwise the same in every
// run.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/expert_parallel.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/layout.h"
#include "runtime/device_memory.h"
#include "runtime/node.h"
#include "runtime/pinned_memory.h"

namespace octet::high_throughput {

// `config` must be valid for `num_ranks` and have its automatic choices made.
Layout MakeLayout(const EpConfig& config, int num_ranks);

class HighThroughput final : public ExpertParallel, private NodeClient {
 public:
  static absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      Node& node, const EpConfig& config, const ExpertParallelOptions& options);
  ~HighThroughput() override;

  const EpConfig& config() const override { return config_; }
  absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchArgs& args) override;
  absl::Status Combine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args) override;
  absl::StatusOr<DispatchHandle> DispatchSend(Rank& rank, const DispatchArgs& args) override;
  absl::StatusOr<Received> DispatchReceive(Rank& rank, const DispatchHandle& handle) override;
  absl::Status CombineSend(Rank& rank, const DispatchHandle& handle,
                           const CombineArgs& args) override;
  absl::Status CombineReceive(Rank& rank, const DispatchHandle& handle,
                              const CombineArgs& args) override;
  absl::Status Poison(Rank& rank, int num_rows) override;
  Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  absl::Span<const TraceTag> trace_tags() const override;

 private:
  // What of a rank has been sent and waits for its receiving half.
  enum class Stage { kIdle, kDispatchSent, kCombineSent };
  enum class Phases { kSend, kReceive, kBoth };
  // One rank's memory and where it stands.
  struct RankState {
    DeviceMemory state;                     // State
    std::vector<DeviceMemory> kept_memory;  // of each layout that is kept
    std::vector<Kept> kept;
    DeviceMemory before;
    DeviceMemory sources;
    DeviceMemory row_index;
    DeviceMemory recv_topk_idx;
    DeviceMemory recv_topk_weights;
    PinnedMemory totals;              // HostTotals, with config.host_totals
    std::vector<Flag> reset_credits;  // what Recover copies from
    State reset_state = {};
    std::vector<Flag> flags;    // a copy of the control memory, from CopyFlags to FlagTables
    uint64_t calls = 0;         // dispatches begun
    uint64_t layouts = 0;       // of those, with a layout of their own
    uint64_t void_layouts = 0;  // the last that a failure has made void
    Stage stage = Stage::kIdle;
  };

  HighThroughput(Node& node, const EpConfig& config, const ExpertParallelOptions& options);
  absl::Status Init();
  absl::Status ChooseShape();
  absl::Status InitRank(Rank& rank);
  CombineVariant Variant() const;
  absl::Status AllocateKept(Rank& rank, RankState& mine) const;
  absl::Status ResetControl(Rank& rank, uint64_t epoch);

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;
  absl::Status CopyFlags(Rank& rank) override;
  std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits) override;
  absl::Status Recover(Rank& rank) override;
  // How far `peer` has come with the flags that `rank` waits for.
  FlagTable::Cell FlagCell(int rank, int peer, const device::FailureRecord& wait);

  absl::Status CheckDispatch(const RankState& mine, const DispatchArgs& args) const;
  // That the handle's layout is kept and the rank stands at `stage`.
  absl::Status CheckHandle(const RankState& mine, const DispatchHandle& handle, Stage stage) const;
  absl::Status CheckLayout(const RankState& mine, const DispatchHandle& handle) const;
  CommonParams Common(Rank& rank, uint64_t layout, Phases phases, int send_waves) const;
  // Checks, enqueues and counts a dispatch.
  absl::StatusOr<DispatchHandle> BeginDispatch(Rank& rank, const DispatchArgs& args, Phases phases);
  absl::Status EnqueueDispatch(Rank& rank, const DispatchHandle& handle, const DispatchArgs& args,
                               Phases phases);
  absl::Status EnqueueCombine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args,
                              Phases phases);
  // What the dispatch has delivered; waits for the totals if they are asked for.
  absl::StatusOr<Received> ReceivedOn(Rank& rank, const DispatchHandle& handle);
  absl::Status AwaitTotals(Rank& rank, uint64_t epoch_before);

  Node& node_;
  EpConfig config_;
  const ExpertParallelOptions options_;
  Layout layout_ = {};
  LaunchShape shape_;
  uint32_t client_ = 0;
  std::unique_ptr<SymmetricHeap> own_heap_;
  std::vector<device::PeerBases> peers_;  // of each rank, moved to this strategy's part of the heap
  std::vector<RankState> ranks_;
  std::vector<uint64_t> recoveries_;  // of each rank
};

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_H_
