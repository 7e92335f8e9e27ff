// The base class of all strategies' host classes. A strategy adds its own protocol: its layout and
// memory, and the parameters of its kernels.
//
// The base class owns the strategy's part of the symmetric heap and its memory on each GPU,
// enforces the order of calls, performs the checks that all calls share, and is the node's client:
// after a failure it reports who waited for what, resets all control memory and continues with
// epochs beyond any used before.
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

// Returns how much symmetric heap a strategy with that layout needs.
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

  // Takes the heap and the memory of each rank. Must be called once, before anything else and not
  // during Run.
  absl::Status Init();

 protected:
  // `batches`: the number of dispatches that may be outstanding at the same time (CallSequence).
  StrategyBase(Node& node, const EpPlan& plan, const ExpertParallelOptions& options,
               int batches = 1);

  // The memory that a strategy needs on each rank.
  struct Needs {
    CallLayout layout;   // of its part of the symmetric heap
    size_t state_bytes;  // its own control memory (StateOn); zero before the first call except for
                         // the CallEpochs
    int call_epochs;     // the number of CallEpochs at the start of that memory
    // Whether dispatch credits hold the number of a layout beside their epoch
    // (runtime/device/epoch.h).
    bool layouts_in_credits = false;
  };

  // ---- Implemented by each strategy.

  // Makes all choices that the caller has left open.
  virtual absl::StatusOr<Needs> Prepare() = 0;
  // Allocates the strategy's memory on the rank other than its heap and state, and loads all
  // kernels that it may launch. Arrays that callers use as indices must name no row (Fill) until
  // something has been received.
  virtual absl::Status InitRank(Rank& rank) = 0;
  // Invalidates everything that was dispatched on the rank before a failure. The stream is idle.
  virtual absl::Status VoidCalls(Rank& rank);

  // Enqueues a dispatch, or only its receiving phase (`args` is then empty). Returns an error if
  // `args` are invalid for this strategy beyond what CheckDispatch checks. `handle` holds what
  // `args` contain; a dispatch with a sending phase may change it.
  virtual absl::Status EnqueueDispatch(Rank& rank, const DispatchArgs& args, Phases phases,
                                       DispatchHandle& handle) = 0;
  // Returns what such a dispatch delivers.
  virtual Received ReceivedOn(const Rank& rank, const DispatchHandle& handle) const = 0;
  virtual absl::Status EnqueueCombine(Rank& rank, const DispatchHandle& handle,
                                      const CombineArgs& args, Phases phases) = 0;
  // Checks that `handle`, made by this object for this rank, can still be received and combined.
  // Default: accepts the handles of the rank's last `batches` dispatches.
  virtual absl::Status CheckHandle(const Rank& rank, const DispatchHandle& handle) const;

  // Returns the memory that receives `rows` rows, for Poison.
  virtual std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const = 0;

  virtual WireFormat DispatchWire() const = 0;
  virtual WireFormat CombineWire() const = 0;

  // Returns the epochs of the flags at `site` that `rank` waits for from `peer` in call `epoch`, as
  // CopyFlags found them (CopiedControl). `site` is neither a count nor a credit. If the flags
  // belong to rows, there is one epoch for each row.
  virtual std::vector<uint64_t> EpochsAt(int rank, int peer, Site site, uint64_t epoch) = 0;

  // ---- Provided to strategies.

  // Returns the number of the rank's next dispatch.
  uint64_t NextCall(const Rank& rank) const {
    return ranks_[Index(rank.rank())].sequence.calls() + 1;
  }
  Node& node() const { return node_; }
  Tuning& tuning() { return config_.tuning; }
  bool traced() const { return options_.trace != nullptr; }
  const LaunchShape& shape() const { return shape_; }
  NodeMemory& memory() { return memory_; }

  // Chooses the threads of a block: tuning().waves_per_block if the caller has set it, else
  // `most_threads` or the platform's limit (launch_limits.h).
  absl::Status ChooseBlock(int most_threads, absl::FunctionRef<size_t(int waves)> shared_bytes);
  // Chooses the number of blocks: tuning().blocks, or `per_unit` on each compute unit, at most
  // config().max_blocks and the platform's limit. `resident_per_unit`: how many blocks can be
  // resident.
  absl::Status ChooseBlocks(int per_unit, int resident_per_unit);

  // For strategies in which some of tuning().blocks send and the others receive: chooses how many
  // send, tuning().send_blocks or half.
  absl::Status ChooseSendBlocks();
  // Returns how many blocks of a launch's grid send.
  int SendBlocks(Phases phases) const;

  // Return the address of this rank's part of the heap's uncached memory, as the rank sees it, and
  // its State.
  char* HeapOn(int rank) const { return peers_[Index(rank)].base[rank]; }
  // Returns the strategy's part of the heap's cached memory, as the rank sees it. The layout must
  // have such memory.
  const device::PeerBases& CachedPeers(int rank) const { return cached_peers_[Index(rank)]; }
  template <typename State>
  State* StateOn(int rank) const {
    return reinterpret_cast<State*>(ranks_[Index(rank)].state.data());
  }
  // Returns the copy of the rank's control memory.
  char* CopiedControl(int rank) {
    return reinterpret_cast<char*>(ranks_[Index(rank)].copied_control.data());
  }

  // Checks that this object made the handle for this rank.
  absl::Status CheckOwner(const Rank& rank, const DispatchHandle& handle) const;

  // Enqueues a fill of `memory` with `byte`.
  template <typename T>
  static absl::Status Fill(Rank& rank, absl::Span<T> memory, int byte) {
    return FillBytes(rank, memory.data(), memory.size() * sizeof(T), byte);
  }

  CallParams ParamsOf(Rank& rank) const;
  static void SetTensors(const DispatchArgs& args, DispatchTensors& tensors);
  static void SetTensors(const DispatchHandle& handle, const CombineArgs& args,
                         CombineTensors& tensors);
  // Calls `launch` for `call`, "dispatch" or "combine", together with all ranks. A launch that only
  // receives does not wait for other ranks, and with FailurePolicy::kMask no launch does.
  absl::Status Launch(Rank& rank, Phases phases, absl::string_view call,
                      absl::FunctionRef<absl::Status()> launch) const;

  // Invalidates everything that was dispatched; all ranks continue from the same epoch, beyond any
  // used before. Called by all ranks together, with idle streams.
  absl::Status BeginAfresh(Rank& rank);

  static size_t Index(int rank) { return static_cast<size_t>(rank); }

 private:
  struct RankState {
    absl::Span<char> state;
    // The source of ResetControl's copies to the GPU, needed until the stream is drained.
    std::vector<Flag> reset_credits;
    std::vector<device::CallEpoch> reset_epochs;
    std::vector<Flag> copied_control;  // from CopyFlags to FlagTables
    uint64_t fresh_starts = 0;         // calls of BeginAfresh
    CallSequence sequence;
  };

  // Checks that `rank` belongs to the node.
  absl::Status CheckRank(const Rank& rank) const;
  // Takes `bytes` of the heap and returns their base addresses, by rank.
  absl::StatusOr<std::vector<device::PeerBases>> TakePart(SymmetricHeap& whole, size_t bytes,
                                                          HeapMemory kind) const;
  static absl::Status FillBytes(Rank& rank, void* memory, size_t bytes, int byte);
  absl::StatusOr<DispatchHandle> BeginDispatch(Rank& rank, const DispatchArgs& args, Phases phases);
  absl::Status CheckDispatch(const Rank& rank, const DispatchArgs& args) const;
  // Checks that `args` use nothing that only one strategy allows, if the contract is kOfAll.
  absl::Status CheckContract(const DispatchArgs& args) const;
  absl::Status BeginCombine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args,
                            Phases phases);
  // Resets all control memory to the state in which all ranks have just completed call `epoch` - 1
  // and call `epoch` comes next.
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
  // The base addresses by rank, moved to this strategy's part of the heap; those of cached memory
  // only if the strategy has some.
  std::vector<device::PeerBases> peers_;
  std::vector<device::PeerBases> cached_peers_;
  NodeMemory memory_;
  std::vector<RankState> ranks_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_STRATEGY_BASE_H_
