#include "kernels/ep/base/strategy_base.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/base/check_tensors.h"
#include "kernels/ep/base/epoch_numbers.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/tuning/tuning.h"
#include "launch_limits.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/caller.h"

namespace octet {
StrategyBase::StrategyBase(Node& node, const EpPlan& plan, const ExpertParallelOptions& options,
                           int batches)
    : shared_node_(node.Share()),
      node_(*shared_node_),
      config_(plan.config),
      options_(options),
      contract_(plan.contract),
      launch_(&config_, node.topology().gpus[0],
              platform::DefaultLaunchLimits(CallBytes(plan.config))),
      control_(node.num_ranks()),
      report_(InfoOf(plan.config.strategy).sites, plan.config.topk),
      memory_(node),
      loads_(node),
      sequences_(Index(node.num_ranks()),
                 CallSequence(plan.contract == Contract::kOfAll ? 1 : batches)) {
  need_->what = "the ExpertParallel whose calls it repeats, which has been destroyed";
  client_ = NodeClient::Register(node, this, options.name);
}

StrategyBase::~StrategyBase() {
  need_->gone = true;
  NodeClient::Unregister(node_, client_);
}

absl::Status StrategyBase::Init() {
  OCTET_ASSIGN_OR_RETURN(const ControlNeeds needs, Prepare());
  OCTET_RETURN_IF_ERROR(control_.TakeHeap(node_, needs, options_.heap));
  return node_.Run([this](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(control_.AllocateState(rank, memory_));
    OCTET_RETURN_IF_ERROR(InitRank(rank));
    LoadOptions loads = config_.loads;
    loads.count = loads.count || config_.low_latency.statistics;
    OCTET_RETURN_IF_ERROR(
        loads_.InitRank(rank, loads, config_.num_local_experts(node_.num_ranks())));
    return control_.Reset(rank, FirstEpoch(0));
  });
}

CallParams StrategyBase::ParamsOf(Rank& rank) const {
  CallParams params = {};
  params.peers = control_.peers(rank.rank());
  params.failure = NodeClient::PortOf(rank, client_);
  if (traced()) params.trace = options_.trace->buffer(rank.rank());
  params.loads = loads_.of(rank.rank());
  return params;
}

void StrategyBase::SetTensors(const DispatchRequest& request, DispatchTensors& tensors,
                              CallParams& params) {
  const DispatchArgs& args = request.args;
  tensors = {.x = args.x,
             .topk_idx = args.topk_idx,
             .topk_weights = args.topk_weights,
             .num_tokens = args.num_tokens,
             .arrivals = request.arrivals};
  // The object that brings the rows knows what is missing, and must report first.
  if (request.arrivals.num_chunks > 0) params.failure.deadline_ticks *= 2;
}

void StrategyBase::SetTensors(const CombineRequest& request, CombineTensors& tensors) {
  tensors = {.expert_out = request.args.expert_out,
             .expert_scale = request.expert_scale,
             .topk_idx = request.handle.topk_idx,
             .topk_weights = request.handle.topk_weights,
             .bias = request.args.bias,
             .num_tokens = request.handle.num_tokens,
             .y = request.args.y,
             .departures = request.departures};
}

absl::Status StrategyBase::Launch(Rank& rank, Phases phases, absl::string_view call,
                                  absl::FunctionRef<absl::Status()> launch) const {
  CaptureNeeds::Add(rank, need_);
  const CallerScope scope(rank, client_);
  const bool alone =
      phases == Phases::kReceive || config_.low_latency.failure_policy == FailurePolicy::kMask;
  return alone ? rank.LaunchWaiting(launch) : rank.CoordinatedLaunch(launch, call);
}

// ---- Calls.

absl::Status StrategyBase::CheckArgs(const Rank& rank, const DispatchArgs& args) const {
  if (args.num_tokens < 0 || args.num_tokens > config_.max_tokens_per_rank) {
    return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", args.num_tokens,
                                                   "; it must be from 0 to max_tokens_per_rank, ",
                                                   config_.max_tokens_per_rank));
  }
  OCTET_RETURN_IF_ERROR(CheckDispatchTensors(rank, config_, args));
  return CheckContract(args);
}

absl::Status StrategyBase::CheckContract(const DispatchArgs& args) const {
  const HighThroughputArgs& own = args.high_throughput;
  if (own == HighThroughputArgs()) return absl::OkStatus();
  const absl::string_view name = own.cached != nullptr        ? "cached"
                                 : own.scatter_idx != nullptr ? "scatter_idx"
                                                              : "x_scales";
  return CheckKeepsLayouts(name);
}

absl::Status StrategyBase::CheckKeepsLayouts(absl::string_view name) const {
  if (contract_ == Contract::kOfAll) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is not for Strategy::kAuto, which may choose a strategy that has none; name ",
        NamesWith(&StrategyInfo::keeps_layouts)));
  }
  if (InfoOf(config_.strategy).keeps_layouts) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " needs the strategy ",
                                                 NamesWith(&StrategyInfo::keeps_layouts), ", not ",
                                                 EnumName(config().strategy)));
}

absl::Status StrategyBase::CheckOwner(const Rank& rank, const DispatchHandle& handle) const {
  if (handle.owner == nullptr) {
    return absl::FailedPreconditionError(
        "the handle is of no dispatch; pass Received::handle, or what DispatchSend has returned");
  }
  if (handle.owner != this || handle.owner_id != client_) {
    return absl::InvalidArgumentError(
        "the handle is of a dispatch of another ExpertParallel; only the one that has sent a "
        "dispatch can receive, combine or repeat it");
  }
  if (handle.rank == rank.rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the handle is of a dispatch of rank ",
                                                 handle.rank, ", and this is rank ", rank.rank(),
                                                 "; each rank has handles of its own"));
}

absl::Status StrategyBase::CheckHandle(const Rank& rank, const DispatchHandle& handle) const {
  return SequenceOf(rank).CheckRecent(handle.call);
}

absl::Status StrategyBase::CheckRank(const Rank& rank) const {
  if (rank.IsOf(node_)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the rank belongs to another node than the one that this ExpertParallel was created on");
}

absl::Status StrategyBase::CheckProduct(const void* product, absl::string_view call) const {
  if (product == nullptr || InfoOf(config_.strategy).fuses_products) return absl::OkStatus();
  return NoProduct(call);
}

absl::Status StrategyBase::CheckDispatch(const Rank& rank, const DispatchRequest& request,
                                         Phases phases) const {
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  OCTET_RETURN_IF_ERROR(SequenceOf(rank).CheckDispatch(phases));
  OCTET_RETURN_IF_ERROR(CheckArgs(rank, request.args));
  return CheckProduct(request.product, "dispatch");
}

absl::StatusOr<DispatchHandle> StrategyBase::BeginDispatch(Rank& rank,
                                                           const DispatchRequest& request,
                                                           Phases phases) {
  OCTET_RETURN_IF_ERROR(CheckDispatch(rank, request, phases));
  CallSequence& sequence = SequenceOf(rank);
  const DispatchArgs& args = request.args;
  DispatchHandle handle = {.call = sequence.calls() + 1,
                           .num_tokens = args.num_tokens,
                           .topk_idx = args.topk_idx,
                           .topk_weights = args.topk_weights,
                           .owner = this,
                           .owner_id = client_,
                           .rank = rank.rank()};
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, request, phases, handle));
  sequence.RecordDispatch(phases);
  return handle;
}

absl::StatusOr<DispatchHandle> StrategyBase::DispatchSend(Rank& rank, const DispatchArgs& args) {
  return BeginDispatch(rank, {.args = args}, Phases::kSend);
}

absl::StatusOr<Received> StrategyBase::DispatchReceive(Rank& rank, const DispatchHandle& handle) {
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  CallSequence& sequence = SequenceOf(rank);
  OCTET_RETURN_IF_ERROR(CheckOwner(rank, handle));
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle));
  OCTET_RETURN_IF_ERROR(sequence.CheckDispatchReceive(handle.call));
  DispatchHandle sent = handle;
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, {}, Phases::kReceive, sent));
  sequence.RecordDispatchReceive();
  return ReceivedOn(rank, handle);
}

absl::StatusOr<Received> StrategyBase::Dispatch(Rank& rank, const DispatchRequest& request) {
  OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, BeginDispatch(rank, request, Phases::kBoth));
  return ReceivedOn(rank, handle);
}

absl::Status StrategyBase::CheckReceivedIsValid(const Rank& rank,
                                                const DispatchHandle& handle) const {
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  OCTET_RETURN_IF_ERROR(CheckOwner(rank, handle));
  return SequenceOf(rank).CheckRecent(handle.call);
}

absl::Status StrategyBase::CheckCombine(const Rank& rank, const CombineRequest& request,
                                        Phases phases) const {
  const DispatchHandle& handle = request.handle;
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  OCTET_RETURN_IF_ERROR(CheckOwner(rank, handle));
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle));
  OCTET_RETURN_IF_ERROR(SequenceOf(rank).CheckCombine(handle.call, phases));
  OCTET_RETURN_IF_ERROR(CheckCombineTensors(rank, config_, node_.num_ranks(), request));
  OCTET_RETURN_IF_ERROR(CheckProduct(request.product, "combine"));
  if (request.args.high_throughput == HighThroughputCombineArgs()) return absl::OkStatus();
  return CheckKeepsLayouts("unweighted");
}

absl::Status StrategyBase::CombinePhase(Rank& rank, const CombineRequest& request, Phases phase) {
  OCTET_RETURN_IF_ERROR(CheckCombine(rank, request, phase));
  OCTET_RETURN_IF_ERROR(EnqueueCombine(rank, request, phase));
  SequenceOf(rank).RecordCombine(request.handle.call, phase);
  return absl::OkStatus();
}

absl::Status StrategyBase::ResetStatistics(Rank& rank) {
  return config_.loads.count ? loads_.Reset(rank) : EpCalls::ResetStatistics(rank);
}

absl::StatusOr<ExpertLoads> StrategyBase::Loads() const {
  if (!config_.loads.count) return EpCalls::Loads();
  return loads_.Read();
}

Traffic StrategyBase::DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  return TrafficOf(DispatchWire(), config_, node_.num_ranks(), rank, topk_idx);
}

Traffic StrategyBase::CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  return TrafficOf(CombineWire(), config_, node_.num_ranks(), rank, topk_idx);
}

// ---- Failures.

absl::Status StrategyBase::VoidCalls(Rank& /*rank*/) { return absl::OkStatus(); }

absl::Status StrategyBase::ResetCalls(Rank& rank) {
  OCTET_ASSIGN_OR_RETURN(const uint64_t epoch, control_.AgreeOnEpoch(rank));
  if (!control_.HasState(rank)) return absl::OkStatus();  // the rank failed before it was allocated
  SequenceOf(rank).Void();
  OCTET_RETURN_IF_ERROR(VoidCalls(rank));
  OCTET_RETURN_IF_ERROR(loads_.ClearWindow(rank));
  return control_.Reset(rank, epoch);
}

absl::Status StrategyBase::Recover(Rank& rank) { return ResetCalls(rank); }

absl::Status StrategyBase::Describe(int rank, const device::FailureRecord& record) const {
  return report_.Describe(rank, record);
}

absl::Status StrategyBase::CheckComplete(const Rank& rank) const {
  return SequenceOf(rank).CheckComplete();
}

absl::Status StrategyBase::CopyFlags(Rank& rank) { return control_.CopyToHost(rank); }

std::vector<FlagTable> StrategyBase::FlagTables(absl::Span<const device::FailureRecord> waits) {
  std::vector<FlagTable> tables =
      report_.Tables(waits, [this](const SiteInfo& site, const FlagWait& wait) {
        return site.flags == FlagKind::kOwn ? OwnFlags(wait)
                                            : control_.CopiedWords(site.flags, wait);
      });
  control_.DropCopies();
  return tables;
}

// ---- Creation.

absl::StatusOr<std::unique_ptr<StrategyBase>> MakeStrategy(Node& node, const EpConfig& config,
                                                           const ExpertParallelOptions& options) {
  std::shared_ptr<const TuningTable> table = std::make_shared<TuningTable>();
  if (options.use_measured_tuning) {
    OCTET_ASSIGN_OR_RETURN(table, TuningTable::Default());
  }
  OCTET_ASSIGN_OR_RETURN(const EpPlan plan,
                         EpPlan::Resolve(config, node.num_ranks(), node.topology(), *table));
  std::unique_ptr<StrategyBase> strategy = InfoOf(plan.config.strategy).make(node, plan, options);
  absl::Status status = strategy->Init();
  if (status.ok()) return strategy;
  if (plan.tuning_origin.empty() || !absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(absl::StrCat(plan.tuning_origin, ": ", status.message()));
}

}  // namespace octet
