// What the host classes of all strategies have in common. A strategy adds its own protocol: its
// layout and memory, and the parameters of its kernels.
//
// The base owns the strategy's part of the symmetric heap and its memory on each GPU, keeps the
// order of the calls, checks what all calls have in common, and is the node's client: after a
// failure it says who waited for what, sets all control memory back and jumps to epochs beyond any
// of before.
#ifndef OCTET_KERNELS_STRATEGY_BASE_H_
#define OCTET_KERNELS_STRATEGY_BASE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/call_sequence.h"
#include "kernels/device/call_layout.h"
#include "kernels/device/call_params.h"
#include "kernels/device/rank_flags.h"
#include "kernels/device/site.h"
#include "kernels/ep_plan.h"
#include "kernels/traffic.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/peers.h"
#include "octet/symmetric_heap.h"
#include "runtime/device/call_epoch.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/launch_shape.h"
#include "runtime/flag_table.h"
#include "runtime/node_client.h"
#include "runtime/node_memory.h"

namespace octet {

// Returns how much of a symmetric heap a strategy with that layout needs.
HeapSize HeapSizeOf(const CallLayout& layout);

class StrategyBase : public ExpertParallel, protected NodeClient {
 public:
  ~StrategyBase() override;

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

  // Takes the heap and the memory of each rank. Once, before all else, not during Run.
  absl::Status Init();

 protected:
  using Phases = octet::Phases;

  // `batches`: dispatches that may be outstanding at the same time (CallSequence).
  StrategyBase(Node& node, const EpPlan& plan, const ExpertParallelOptions& options,
               int batches = 1);

  // What a strategy has on each rank.
  struct Needs {
    CallLayout layout;   // of its part of the symmetric heap
    size_t state_bytes;  // of its own control memory, StateOn, which is zero before the first call
    int call_epochs;     // but for as many CallEpochs, which come first
    // Dispatch credits have the number of a layout beside their epoch (runtime/device/epoch.h).
    bool layouts_in_credits = false;
  };

  // ---- What makes a strategy.

  // Makes all choices that the caller has left open.
  virtual absl::StatusOr<Needs> Prepare() = 0;
  // Allocates what it has on the rank beside its heap and state, and loads all kernels that it may
  // launch. What callers index with names no row (Fill) until something has been received.
  virtual absl::Status InitRank(Rank& rank) = 0;
  // After a failure: nothing that was dispatched on the rank before is valid any more. With its
  // stream idle.
  virtual absl::Status VoidCalls(Rank& rank);

  // Enqueues a dispatch, or the receiving half of one (`args` is then empty). What is wrong with
  // `args` for this strategy beyond CheckDispatch is an error here. A dispatch that is not only a
  // receiving half may change `handle`, which is filled with what `args` have.
  virtual absl::Status EnqueueDispatch(Rank& rank, const DispatchArgs& args, Phases phases,
                                       DispatchHandle& handle) = 0;
  // What such a dispatch delivers.
  virtual Received ReceivedOn(const Rank& rank, const DispatchHandle& handle) const = 0;
  virtual absl::Status EnqueueCombine(Rank& rank, const DispatchHandle& handle,
                                      const CombineArgs& args, Phases phases) = 0;
  // That `handle`, which is this object's and the rank's, can still be received and combined. By
  // default those of the rank's last dispatches can, as many as there are batches.
  virtual absl::Status CheckHandle(const Rank& rank, const DispatchHandle& handle) const;

  // Where `rows` received rows come to, for Poison.
  virtual std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const = 0;

  virtual WireFormat DispatchWire() const = 0;
  virtual WireFormat CombineWire() const = 0;

  // The flags at `site`, neither counts nor credits, that `rank` waits for of `peer` in call
  // `epoch`, as CopyFlags found them (CopiedControl): the epochs that they have come to, of rows
  // one for each row.
  virtual std::vector<uint64_t> EpochsAt(int rank, int peer, Site site, uint64_t epoch) = 0;

  // ---- What a strategy is made with.

  // The number of the rank's next dispatch.
  uint64_t NextCall(const Rank& rank) const {
    return ranks_[Index(rank.rank())].sequence.calls() + 1;
  }
  Node& node() const { return node_; }
  Tuning& tuning() { return config_.tuning; }
  bool traced() const { return options_.trace != nullptr; }
  const LaunchShape& shape() const { return shape_; }
  NodeMemory& memory() { return memory_; }

  // Threads of a block: tuning().waves_per_block if the caller has said it, else `most_threads`, or
  // the platform's limit (launch_limits.h).
  absl::Status ChooseBlock(int most_threads, absl::FunctionRef<size_t(int waves)> shared_bytes);
  // Blocks: tuning().blocks, or `per_unit` on each compute unit, at most config().max_blocks and
  // the platform's limit. `resident_per_unit`: how many can be resident.
  absl::Status ChooseBlocks(int per_unit, int resident_per_unit);

  // Where some of tuning().blocks send and the others receive: tuning().send_blocks, or half.
  absl::Status ChooseSendBlocks();
  // Of the grid of a launch.
  int SendBlocks(Phases phases) const;

  // This rank's part of the heap's uncached memory, as the rank sees it, and its State.
  char* HeapOn(int rank) const { return peers_[Index(rank)].base[rank]; }
  // The strategy's part of the heap's cached memory, as the rank sees it. Only where the layout has
  // such memory.
  const device::PeerBases& CachedPeers(int rank) const { return cached_peers_[Index(rank)]; }
  template <typename State>
  State* StateOn(int rank) const {
    return reinterpret_cast<State*>(ranks_[Index(rank)].state.data());
  }
  // The copy of the rank's control memory.
  char* CopiedControl(int rank) {
    return reinterpret_cast<char*>(ranks_[Index(rank)].copied_control.data());
  }

  // That the handle was made by this object for this rank.
  absl::Status CheckOwner(const Rank& rank, const DispatchHandle& handle) const;

  // Enqueues that all bytes of `memory` are `byte`.
  template <typename T>
  static absl::Status Fill(Rank& rank, absl::Span<T> memory, int byte) {
    return FillBytes(rank, memory.data(), memory.size() * sizeof(T), byte);
  }

  CallParams ParamsOf(Rank& rank) const;
  static void SetTensors(const DispatchArgs& args, DispatchTensors& tensors);
  static void SetTensors(const DispatchHandle& handle, const CombineArgs& args,
                         CombineTensors& tensors);
  // Calls `launch` for `call`, "dispatch" or "combine", together with all ranks unless it only
  // receives: then it waits for nobody who is yet to come. With FailurePolicy::kMask never
  // together: nobody has to come.
  absl::Status Launch(Rank& rank, Phases phases, absl::string_view call,
                      absl::FunctionRef<absl::Status()> launch) const;

  // Whatever was dispatched is void, and all ranks go on from the same epoch, beyond any of before.
  // Called by all ranks together, with idle streams.
  absl::Status BeginAfresh(Rank& rank);

  static size_t Index(int rank) { return static_cast<size_t>(rank); }

 private:
  struct RankState {
    absl::Span<char> state;
    // What ResetControl copies to the GPU, until the stream is drained.
    std::vector<Flag> reset_credits;
    std::vector<device::CallEpoch> reset_epochs;
    std::vector<Flag> copied_control;  // from CopyFlags to FlagTables
    uint64_t fresh_starts = 0;         // BeginAfresh
    CallSequence sequence;
  };

  // That `rank` is one of the node's.
  absl::Status CheckRank(const Rank& rank) const;
  // The bases of `bytes` of the heap, by rank.
  absl::StatusOr<std::vector<device::PeerBases>> TakePart(SymmetricHeap& whole, size_t bytes,
                                                          HeapMemory kind) const;
  static absl::Status FillBytes(Rank& rank, void* memory, size_t bytes, int byte);
  absl::StatusOr<DispatchHandle> BeginDispatch(Rank& rank, const DispatchArgs& args, Phases phases);
  absl::Status CheckDispatch(const Rank& rank, const DispatchArgs& args) const;
  // That no call is only one strategy's, where calls are held to what all allow.
  absl::Status CheckContract(const DispatchArgs& args) const;
  absl::Status BeginCombine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args,
                            Phases phases);
  // All control memory as if call `epoch` - 1 had just been completed by everybody and call `epoch`
  // came next.
  absl::Status ResetControl(Rank& rank, uint64_t epoch);
  FlagTable::Cell FlagCell(int rank, int peer, Site site, uint64_t epoch);

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;
  absl::Status CheckComplete(const Rank& rank) const override;
  absl::Status CopyFlags(Rank& rank) override;
  std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits) override;
  absl::Status Recover(Rank& rank) override;

  const std::shared_ptr<Node> shared_node_;
  Node& node_;
  EpConfig config_;
  const ExpertParallelOptions options_;
  const Contract contract_;
  Needs needs_ = {};
  LaunchShape shape_;
  uint32_t client_ = 0;
  std::unique_ptr<SymmetricHeap> own_heap_;
  // Of each rank, moved to this strategy's part of the heap; of cached memory only if it has some.
  std::vector<device::PeerBases> peers_;
  std::vector<device::PeerBases> cached_peers_;
  NodeMemory memory_;
  std::vector<RankState> ranks_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_STRATEGY_BASE_H_
