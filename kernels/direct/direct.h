// The `direct` strategy: every (token, k) is sent by itself, straight to its expert's GPU, and
// every expert output straight home.
//
// Source of the algorithm: "My first Multi-GPU kernel: Writing All-to-all for AMD MI300X" (Thien
// Tran, 2025), versions 4 to 9, with 64-bit epochs and credits in the place of flags that are
// reset, slots by prefix sums, and sending and receiving side by side in one kernel.
//
// Arithmetic order of combine: flat (kernels/reference.h).
#ifndef OCTET_KERNELS_DIRECT_DIRECT_H_
#define OCTET_KERNELS_DIRECT_DIRECT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/direct/kernels.h"
#include "kernels/direct/layout.h"
#include "kernels/expert_parallel.h"
#include "runtime/device_memory.h"
#include "runtime/flag_table.h"
#include "runtime/node.h"

namespace octet::direct {

// `config` must be valid for `num_ranks` and its row_parts chosen.
Layout MakeLayout(const EpConfig& config, int num_ranks);

// The parts that a row is cut into when the caller leaves it open.
int ChooseRowParts(const EpConfig& config);

class Direct final : public ExpertParallel, private NodeClient {
 public:
  static absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      Node& node, const EpConfig& config, const ExpertParallelOptions& options);
  ~Direct() override;

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
  // How far the last dispatch of a rank has come, by what has been enqueued.
  enum class Stage { kNone, kSent, kReceived, kCombineSent };
  // One rank's memory and where it stands.
  struct RankState {
    DeviceMemory state;  // State, with E expert_slots
    DeviceMemory recv_x;
    DeviceMemory sources;
    DeviceMemory expert_counts;
    DeviceMemory expert_offsets;
    std::vector<Flag> flags;  // a copy of the control memory, from CopyFlags to FlagTables
    // What ResetControl copies to the GPU, until the stream is drained.
    std::vector<Flag> reset_credits;
    std::vector<char> reset_state;
    uint64_t calls = 0;  // dispatches begun on this rank
    Stage stage = Stage::kNone;
  };
  enum class Phases { kSend, kReceive, kBoth };

  Direct(Node& node, const EpConfig& config, const ExpertParallelOptions& options);
  absl::Status Init();
  absl::Status ChooseShape();
  absl::Status InitRank(Rank& rank);
  absl::Status ResetControl(Rank& rank, uint64_t epoch);

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;
  absl::Status CopyFlags(Rank& rank) override;
  std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits) override;
  absl::Status Recover(Rank& rank) override;

  // The words that `rank` waits for of `peer`, as CopyFlags found them.
  FlagTable::Cell FlagCell(int rank, int peer, const device::FailureRecord& wait);

  absl::Status CheckDispatch(Rank& rank, const DispatchArgs& args) const;
  // That `handle` is the rank's last dispatch and has come just to `stage`.
  absl::Status CheckHandle(Rank& rank, const DispatchHandle& handle, Stage stage) const;
  CommonParams Common(Rank& rank, Phases phases) const;
  absl::Status EnqueueDispatch(Rank& rank, const DispatchArgs& args, Phases phases);
  absl::Status EnqueueCombine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args,
                              Phases phases);
  // Rows of this routing, `part_bytes` beside each part and `peer_bytes` to each peer.
  Traffic CountTraffic(int rank, absl::Span<const int32_t> topk_idx, int64_t part_bytes,
                       int64_t peer_bytes) const;
  Received ReceivedOn(Rank& rank, const DispatchHandle& handle) const;

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

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_DIRECT_H_
