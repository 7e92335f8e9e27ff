// The base class of all strategies' host classes. It implements the calls by composing
//
//   LaunchPlan     the choice of blocks and waves
//   ControlMemory  the strategy's part of the symmetric heap, its state, epochs and their reset
//   CallSequence   the legal order of calls, one for each rank
//   FlagReport     the text of failures
//
// and the checks that all strategies share. A strategy adds its own protocol: its layout and
// memory, and the parameters of its kernels. As the node's client, the base class reports after a
// failure who waited for what, and continues with epochs beyond any used before.
#ifndef OCTET_KERNELS_EP_BASE_STRATEGY_BASE_H_
#define OCTET_KERNELS_EP_BASE_STRATEGY_BASE_H_

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
#include "kernels/ep/base/call_sequence.h"
#include "kernels/ep/base/control_memory.h"
#include "kernels/ep/base/flag_report.h"
#include "kernels/ep/base/launch_plan.h"
#include "kernels/ep/base/load_counting.h"
#include "kernels/ep/device/call_params.h"
#include "kernels/ep/ep_calls.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/site_info.h"
#include "kernels/ep/traffic.h"
#include "octet/expert_parallel.h"
#include "octet/memory_piece.h"
#include "octet/node.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/launch_shape.h"
#include "runtime/failure/flag_table.h"
#include "runtime/memory/node_memory.h"
#include "runtime/node/capture_need.h"
#include "runtime/node/node_client.h"

namespace octet {

class StrategyBase : public EpCalls, protected NodeClient {
 public:
  ~StrategyBase() override;

  const EpConfig& config() const override { return config_; }
  absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchRequest& request) override;
  absl::Status Combine(Rank& rank, const CombineRequest& request) override {
    return CombinePhase(rank, request, Phases::kBoth);
  }
  absl::StatusOr<DispatchHandle> DispatchSend(Rank& rank, const DispatchArgs& args) override;
  absl::StatusOr<Received> DispatchReceive(Rank& rank, const DispatchHandle& handle) override;
  absl::Status CombinePhase(Rank& rank, const CombineRequest& request, Phases phase) override;
  absl::Status ResetStatistics(Rank& rank) override;
  absl::StatusOr<ExpertLoads> Loads() const override;
  LoadCounting* load_counting() override { return &loads_; }
  Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;

  // Takes the heap and the memory of each rank. Must be called once, before anything else and not
  // during Run.
  absl::Status Init();

  absl::Status CheckDispatch(const Rank& rank, const DispatchRequest& request,
                             Phases phases) const override;
  absl::Status CheckCombine(const Rank& rank, const CombineRequest& request) const override {
    return CheckCombine(rank, request, Phases::kBoth);
  }
  absl::Status CheckReceivedIsValid(const Rank& rank, const DispatchHandle& handle) const override;

 protected:
  // `batches`: the number of dispatches that may be outstanding at the same time (CallSequence).
  StrategyBase(Node& node, const EpPlan& plan, const ExpertParallelOptions& options,
               int batches = 1);

  // ---- Implemented by each strategy.

  // Makes all choices that the caller has left open.
  virtual absl::StatusOr<ControlNeeds> Prepare() = 0;
  // Allocates the strategy's memory on the rank other than its heap and state, and loads all
  // kernels that it may launch. Arrays that callers use as indices must name no row (Fill) until
  // something has been received.
  virtual absl::Status InitRank(Rank& rank) = 0;
  // Invalidates everything that was dispatched on the rank before a failure. The stream is idle.
  virtual absl::Status VoidCalls(Rank& rank);

  // Enqueues a dispatch, or only its receiving phase (`request` is then empty). Returns an error if
  // its arguments are invalid for this strategy beyond what CheckDispatch checks. `handle` holds
  // what they contain; a dispatch with a sending phase may change it. Products come only to
  // strategies whose StrategyInfo::fuses_products says so.
  virtual absl::Status EnqueueDispatch(Rank& rank, const DispatchRequest& request, Phases phases,
                                       DispatchHandle& handle) = 0;
  // Returns what such a dispatch delivers.
  virtual Received ReceivedOn(const Rank& rank, const DispatchHandle& handle) const = 0;
  virtual absl::Status EnqueueCombine(Rank& rank, const CombineRequest& request, Phases phases) = 0;
  // Checks that `handle`, made by this object for this rank, can still be received and combined.
  // Default: accepts the handles of the rank's last `batches` dispatches.
  virtual absl::Status CheckHandle(const Rank& rank, const DispatchHandle& handle) const;

  virtual WireFormat DispatchWire() const = 0;
  virtual WireFormat CombineWire() const = 0;

  // Returns the words of the flags (FlagKind::kOwn) that a wait is for, as CopyFlags found them
  // (control().copied). If the flags belong to rows, there is one word for each row.
  virtual std::vector<uint64_t> OwnFlags(const FlagWait& wait) = 0;

  // ---- Provided to strategies.

  // Returns the number of the rank's next dispatch.
  uint64_t NextCall(const Rank& rank) const { return SequenceOf(rank).calls() + 1; }
  Node& node() const { return node_; }
  bool traced() const { return options_.trace != nullptr; }
  LaunchPlan& launch() { return launch_; }
  const LaunchPlan& launch() const { return launch_; }
  const LaunchShape& shape() const { return launch_.shape(); }
  ControlMemory& control() { return control_; }
  const ControlMemory& control() const { return control_; }
  NodeMemory& memory() { return memory_; }
  const LoadCounting& loads() const { return loads_; }
  template <typename State>
  State* StateOn(int rank) const {
    return reinterpret_cast<State*>(control_.state(rank));
  }

  // Checks that this object made the handle for this rank.
  absl::Status CheckOwner(const Rank& rank, const DispatchHandle& handle) const;

  CallParams ParamsOf(Rank& rank) const;
  // Set what follows from the arguments. `params`: ParamsOf.
  static void SetTensors(const DispatchRequest& request, DispatchTensors& tensors,
                         CallParams& params);
  static void SetTensors(const CombineRequest& request, CombineTensors& tensors);
  // Calls `launch` for `call`, "dispatch" or "combine", together with all ranks. A launch that only
  // receives does not wait for other ranks, and with FailurePolicy::kMask no launch does.
  absl::Status Launch(Rank& rank, Phases phases, absl::string_view call,
                      absl::FunctionRef<absl::Status()> launch) const;

  // Invalidates everything that was dispatched; all ranks continue from the same epoch, beyond any
  // used before. Called by all ranks together, with idle streams.
  absl::Status ResetCalls(Rank& rank);

  static size_t Index(int rank) { return static_cast<size_t>(rank); }

 private:
  // Checks that `rank` belongs to the node.
  absl::Status CheckRank(const Rank& rank) const;
  CallSequence& SequenceOf(const Rank& rank) { return sequences_[Index(rank.rank())]; }
  const CallSequence& SequenceOf(const Rank& rank) const { return sequences_[Index(rank.rank())]; }
  absl::StatusOr<DispatchHandle> BeginDispatch(Rank& rank, const DispatchRequest& request,
                                               Phases phases);
  absl::Status CheckArgs(const Rank& rank, const DispatchArgs& args) const;
  // Checks that `args` use nothing that another strategy has, nor, if the contract is kOfAll, what
  // only one strategy has.
  absl::Status CheckContract(const DispatchArgs& args) const;
  // Refuses the argument `name` if this strategy keeps no layouts, or another one may have been
  // chosen that does not.
  absl::Status CheckKeepsLayouts(absl::string_view name) const;
  // Refuses the product of a request if the strategy fuses none.
  absl::Status CheckProduct(const void* product, absl::string_view call) const;
  absl::Status CheckCombine(const Rank& rank, const CombineRequest& request, Phases phases) const;
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
  LaunchPlan launch_;
  ControlMemory control_;
  FlagReport report_;
  uint32_t client_ = 0;
  const std::shared_ptr<CaptureNeed> need_ = std::make_shared<CaptureNeed>();  // of graphs
  NodeMemory memory_;
  LoadCounting loads_;
  std::vector<CallSequence> sequences_;  // by rank
};

// StrategyInfo::make, heap_size and list_memory, of a host class and of the function that makes its
// layout.
template <typename T>
std::unique_ptr<StrategyBase> MakeOne(Node& node, const EpPlan& plan,
                                      const ExpertParallelOptions& options) {
  return std::make_unique<T>(node, plan, options);
}
template <auto kMakeLayout>
HeapSize HeapSizeBy(const EpConfig& config, int num_ranks) {
  return HeapSizeOf(kMakeLayout(config, num_ranks, nullptr));
}
template <auto kMakeLayout, auto kListOwnMemory>
void ListMemoryBy(const EpConfig& config, int num_ranks, int blocks,
                  std::vector<MemoryPiece>& list) {
  kListOwnMemory(config, kMakeLayout(config, num_ranks, &list), blocks, list);
}

// Makes the calls of the strategy that `config` says or that is chosen.
absl::StatusOr<std::unique_ptr<StrategyBase>> MakeStrategy(Node& node, const EpConfig& config,
                                                           const ExpertParallelOptions& options);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_STRATEGY_BASE_H_
