#include "tools/contenders/sorted_exchange.h"

#include <array>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/device/rank_flags.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/traffic.h"
#include "kernels/oracle/pointwise_expert.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

constexpr int kBlocksPerUnit = 4;
constexpr int kThreads = 512;

static_assert(kMaxSortedExperts == kMaxExperts);

SortedRowsShape RowsShape(const EpConfig& config, int num_ranks) {
  return {.num_ranks = num_ranks,
          .num_experts = config.num_experts,
          .num_local_experts = config.num_local_experts(num_ranks),
          .topk = config.topk,
          .row_vecs = static_cast<int>(config.dtype_row_bytes() / kVecBytes),
          .fp16 = config.dtype == DType::kFloat16};
}

// Returns the configuration of direct, whose limits and order of addition the exchange shares.
EpConfig AsDirect(EpConfig config) {
  config.strategy = Strategy::kDirect;
  return config;
}

}  // namespace

// One rank's memory and its number of calls.
struct SortedExchange::RankState {
  ExchangeBuffers buffers;
  uint64_t calls = 0;
};

absl::Status SortedExchange::Check(const EpConfig& config, int num_ranks) {
  if (!config.placement.empty()) {
    return absl::InvalidArgumentError("other contenders know no placement of experts");
  }
  const absl::Status status = Validate(AsDirect(config), num_ranks);
  return status.ok() ? status
                     : absl::Status(status.code(),
                                    absl::StrCat("other contenders support what direct does: ",
                                                 status.message()));
}

absl::StatusOr<std::unique_ptr<ExpertParallel>> SortedExchange::Create(
    Node& node, const EpConfig& config, std::unique_ptr<RowTransport> transport) {
  OCTET_RETURN_IF_ERROR(Check(config, node.num_ranks()));
  auto exchange = absl::WrapUnique(new SortedExchange(
      node, EpPlan::ByRules(AsDirect(config), node.num_ranks()), std::move(transport)));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return exchange->InitRank(rank); }));
  std::vector<ExchangeBuffers*> buffers;
  for (const std::unique_ptr<RankState>& rank : exchange->ranks_) buffers.push_back(&rank->buffers);
  OCTET_RETURN_IF_ERROR(
      node.Run([&](Rank& rank) { return exchange->transport_->Prepare(rank, buffers); }));
  return std::make_unique<ExpertParallel>(std::move(exchange));
}

SortedExchange::SortedExchange(Node& node, const EpConfig& config,
                               std::unique_ptr<RowTransport> transport)
    : node_(node),
      config_(config),
      shape_(RowsShape(config, node.num_ranks())),
      launch_({.blocks = node.topology().gpus[0].num_compute_units * kBlocksPerUnit,
               .threads = kThreads}),
      max_rows_(config.max_rows(node.num_ranks())),
      memory_(node),
      transport_(std::move(transport)) {
  for (int r = 0; r < node.num_ranks(); ++r) ranks_.push_back(std::make_unique<RankState>());
}

SortedExchange::~SortedExchange() = default;

absl::Status SortedExchange::InitRank(Rank& rank) {
  RankState& mine = StateOf(rank);
  ExchangeBuffers& buffers = mine.buffers;
  const auto experts = static_cast<size_t>(config_.num_experts);
  const auto flats =
      static_cast<size_t>(config_.max_tokens_per_rank) * static_cast<size_t>(config_.topk);
  const auto rows = static_cast<size_t>(max_rows_);
  const auto num_local = static_cast<size_t>(shape_.num_local_experts);
  const auto allocate = [this](auto** pointer, size_t bytes) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const absl::Span<char> memory, memory_.Device<char>(bytes));
    *pointer = reinterpret_cast<std::remove_pointer_t<decltype(pointer)>>(memory.data());
    return absl::OkStatus();
  };
  buffers.row_bytes = static_cast<size_t>(shape_.row_vecs) * kVecBytes;
  buffers.num_ranks = shape_.num_ranks;
  buffers.num_local_experts = shape_.num_local_experts;
  SortedSide& sorted = buffers.sorted;
  ArrivedSide& arrived = buffers.arrived;
  for (uint32_t** keys : {&sorted.keys, &sorted.sorted_keys}) {
    OCTET_RETURN_IF_ERROR(allocate(keys, flats * sizeof(uint32_t)));
  }
  for (int32_t** each : {&sorted.flats, &sorted.sorted_flats, &sorted.position}) {
    OCTET_RETURN_IF_ERROR(allocate(each, flats * sizeof(int32_t)));
  }
  for (int32_t** counts : {&sorted.counts, &arrived.counts, &arrived.offset}) {
    OCTET_RETURN_IF_ERROR(allocate(counts, experts * sizeof(int32_t)));
  }
  OCTET_RETURN_IF_ERROR(allocate(&sorted.rows, flats * buffers.row_bytes));
  OCTET_RETURN_IF_ERROR(allocate(&arrived.first, (experts + 1) * sizeof(int32_t)));
  OCTET_RETURN_IF_ERROR(allocate(&arrived.flats, rows * sizeof(int32_t)));
  OCTET_RETURN_IF_ERROR(allocate(&arrived.rows, rows * buffers.row_bytes));
  OCTET_RETURN_IF_ERROR(allocate(&arrived.expert_counts, num_local * sizeof(int32_t)));
  OCTET_RETURN_IF_ERROR(allocate(&arrived.expert_offsets, (num_local + 1) * sizeof(int32_t)));
  OCTET_RETURN_IF_ERROR(allocate(&arrived.sources, rows * sizeof(RowSource)));
  OCTET_RETURN_IF_ERROR(allocate(&arrived.x, rows * buffers.row_bytes));

  OCTET_RETURN_IF_GPU_ERROR(
      SortFlatsBytes(static_cast<int>(flats), config_.num_experts, &sorted.temp_bytes));
  OCTET_RETURN_IF_ERROR(allocate(&sorted.temp, sorted.temp_bytes));
  OCTET_RETURN_IF_ERROR(LoadKernels(rank));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<int32_t> counts, memory_.Pinned<int32_t>(2 * experts));
  buffers.sent_counts = counts.data();
  buffers.arrived_counts = buffers.sent_counts + experts;
  buffers.sent.resize(static_cast<size_t>(shape_.num_ranks));
  buffers.received.resize(static_cast<size_t>(shape_.num_ranks));
  return absl::OkStatus();
}

// Runs the sort for both extremes: the platform's sort chooses its kernels by the number of keys.
absl::Status SortedExchange::LoadKernels(Rank& rank) {
  const RankState& mine = StateOf(rank);
  const SortedSide& sorted = mine.buffers.sorted;
  const int flats = config_.max_tokens_per_rank * config_.topk;
  OCTET_RETURN_IF_GPU_ERROR(LoadSortedRows(shape_.fp16));
  OCTET_RETURN_IF_ERROR(LoadPointwiseExpert(config_));
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(
      sorted.position, 0, static_cast<size_t>(flats) * sizeof(int32_t), rank.stream()));
  for (const int n : {1, flats}) {
    OCTET_RETURN_IF_GPU_ERROR(
        LaunchSortFlats(shape_, sorted, sorted.position, n, {launch_, rank.stream()}));
  }
  return absl::OkStatus();
}

absl::Status SortedExchange::CheckDispatch(const Rank& /*rank*/, const DispatchRequest& request,
                                           Phases /*phases*/) const {
  const int num_tokens = request.args.num_tokens;
  if (num_tokens >= 0 && num_tokens <= config_.max_tokens_per_rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", num_tokens,
                                                 "; it must be from 0 to max_tokens_per_rank, ",
                                                 config_.max_tokens_per_rank));
}

absl::StatusOr<DispatchHandle> SortedExchange::DispatchSend(Rank& rank, const DispatchArgs& args) {
  OCTET_RETURN_IF_ERROR(CheckDispatch(rank, {.args = args}, Phases::kSend));
  RankState& mine = StateOf(rank);
  const SortedSide& sorted = mine.buffers.sorted;
  const int flats = args.num_tokens * config_.topk;
  OCTET_RETURN_IF_GPU_ERROR(
      LaunchSortFlats(shape_, sorted, args.topk_idx, flats, {launch_, rank.stream()}));
  OCTET_RETURN_IF_ERROR(transport_->StartCounts(rank));
  // Overlaps with the exchange of counts.
  OCTET_RETURN_IF_GPU_ERROR(LaunchGather(shape_, sorted, args.x, flats, {launch_, rank.stream()}));
  OCTET_RETURN_IF_ERROR(transport_->FinishCounts(rank));
  OCTET_RETURN_IF_ERROR(transport_->Exchange(rank, Direction::kToExperts));
  return DispatchHandle{++mine.calls, args.num_tokens, args.topk_idx, args.topk_weights};
}

absl::StatusOr<Received> SortedExchange::DispatchReceive(Rank& rank, const DispatchHandle& handle) {
  const ExchangeBuffers& buffers = StateOf(rank).buffers;
  const ArrivedSide& arrived = buffers.arrived;
  const int wave_size = node_.topology().gpus[0].wave_size;
  OCTET_RETURN_IF_GPU_ERROR(LaunchPlan(shape_, arrived, wave_size, rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(LaunchScatter(shape_, arrived, {launch_, rank.stream()}));
  Received received;
  received.x = arrived.x;
  received.expert_counts = arrived.expert_counts;
  received.expert_offsets = arrived.expert_offsets;
  received.sources = arrived.sources;
  received.row_bytes = buffers.row_bytes;
  received.max_rows = max_rows_;
  received.handle = handle;
  return received;
}

absl::StatusOr<Received> SortedExchange::Dispatch(Rank& rank, const DispatchRequest& request) {
  OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, DispatchSend(rank, request.args));
  return DispatchReceive(rank, handle);
}

absl::Status SortedExchange::CheckReceivedIsValid(const Rank& rank,
                                                  const DispatchHandle& handle) const {
  const uint64_t calls = StateOf(rank).calls;
  if (handle.call == calls) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the handle is of dispatch ", handle.call,
                                                    " of this rank, whose last is ", calls));
}

absl::Status SortedExchange::CheckCombine(const Rank& rank, const CombineRequest& request) const {
  return CheckReceivedIsValid(rank, request.handle);
}

absl::Status SortedExchange::Return(Rank& rank, const CombineRequest& request) {
  OCTET_RETURN_IF_ERROR(CheckCombine(rank, request));
  OCTET_RETURN_IF_GPU_ERROR(LaunchReturn(shape_, StateOf(rank).buffers.arrived,
                                         request.args.expert_out, request.expert_scale,
                                         {launch_, rank.stream()}));
  return transport_->Exchange(rank, Direction::kToOrigin);
}

absl::Status SortedExchange::Sum(Rank& rank, const CombineRequest& request) {
  const DispatchHandle& handle = request.handle;
  return OCTET_GPU(LaunchSum(shape_, StateOf(rank).buffers.sorted,
                             {handle.topk_weights, handle.num_tokens, request.args.y},
                             {launch_, rank.stream()}));
}

absl::Status SortedExchange::Combine(Rank& rank, const CombineRequest& request) {
  OCTET_RETURN_IF_ERROR(Return(rank, request));
  return Sum(rank, request);
}

absl::Status SortedExchange::CombinePhase(Rank& rank, const CombineRequest& request, Phases phase) {
  return phase == Phases::kSend ? Return(rank, request) : Sum(rank, request);
}

std::vector<std::pair<void*, size_t>> SortedExchange::Delivered(const Rank& rank,
                                                                size_t rows) const {
  const ExchangeBuffers& buffers = StateOf(rank).buffers;
  const ArrivedSide& arrived = buffers.arrived;
  const auto num_local = static_cast<size_t>(shape_.num_local_experts);
  return {
      {arrived.x, rows * buffers.row_bytes},
      {arrived.rows, rows * buffers.row_bytes},
      {arrived.sources, rows * sizeof(RowSource)},
      {arrived.expert_counts, num_local * sizeof(int32_t)},
      {arrived.expert_offsets, (num_local + 1) * sizeof(int32_t)},
  };
}

std::vector<int32_t> SortedExchange::ExpertRows(const Rank& rank) {
  const ExchangeBuffers& buffers = StateOf(rank).buffers;
  const auto num_local = static_cast<size_t>(shape_.num_local_experts);
  std::vector<int32_t> rows(num_local, 0);
  for (size_t i = 0; i < static_cast<size_t>(shape_.num_experts); ++i) {
    rows[i % num_local] += buffers.arrived_counts[i];
  }
  return rows;
}

Traffic SortedExchange::DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  const auto row = static_cast<int64_t>(shape_.row_vecs) * static_cast<int64_t>(kVecBytes);
  Traffic traffic = TrafficOf({.row = row, .beside_row = sizeof(int32_t)}, config_,
                              shape_.num_ranks, rank, topk_idx);
  traffic.wire_bytes += transport_->CountBytes(shape_.num_ranks, shape_.num_local_experts);
  return traffic;
}

Traffic SortedExchange::CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  const auto row = static_cast<int64_t>(shape_.row_vecs) * static_cast<int64_t>(kVecBytes);
  return TrafficOf({.row = row}, config_, shape_.num_ranks, rank, topk_idx);
}

}  // namespace octet
