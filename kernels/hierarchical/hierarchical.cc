#include "kernels/hierarchical/hierarchical.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/call_sequence.h"
#include "kernels/check_pointers.h"
#include "kernels/config_checks.h"
#include "kernels/ep_internals.h"
#include "kernels/flag_report.h"
#include "kernels/hierarchical/kernels.h"
#include "kernels/whole_gpu.h"
#include "octet/enum_names.h"
#include "runtime/capture.h"
#include "runtime/gpu_status.h"
#include "runtime/net/rail.h"
#include "runtime/node_client.h"
#include "runtime/node_memory.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

using hierarchical::HostCounts;
using hierarchical::kMaxNodes;
using hierarchical::Packed;

size_t Size(int value) { return static_cast<size_t>(value); }

absl::Status NoPhases() {
  return absl::UnimplementedError(
      "calls over several nodes have no separate phases; use Dispatch and Combine");
}

class Hierarchical : public CheckedEp, private NodeClient {
 public:
  Hierarchical(Node& node, absl::Span<Rail* const> rails, const EpConfig& config, RailRows rows,
               std::unique_ptr<ExpertParallel> intranode);
  ~Hierarchical() override { NodeClient::Unregister(*node_, client_); }

  // Must be called once, before anything else and not during Run.
  absl::Status Init();

  const EpConfig& config() const override { return config_; }
  absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchArgs& args) override;
  absl::Status Combine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args) override;
  absl::StatusOr<DispatchHandle> DispatchSend(Rank&, const DispatchArgs&) override {
    return NoPhases();
  }
  absl::StatusOr<Received> DispatchReceive(Rank&, const DispatchHandle&) override {
    return NoPhases();
  }
  absl::Status CombineSend(Rank&, const DispatchHandle&, const CombineArgs&) override {
    return NoPhases();
  }
  absl::Status CombineReceive(Rank&, const DispatchHandle&, const CombineArgs&) override {
    return NoPhases();
  }
  absl::StatusOr<EpStatistics> Statistics(Rank& rank) override {
    return intranode_->Statistics(rank);
  }
  absl::Status ResetStatistics(Rank& rank) override { return intranode_->ResetStatistics(rank); }
  Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  absl::Status CheckCombine(const Rank& rank, const DispatchHandle& handle,
                            const CombineArgs& args) const override;
  absl::Status CheckReceivedIsValid(const Rank& rank, const DispatchHandle& handle) const override;

 private:
  // Where the rows of each node are: `first` in the batch, in numbers of rows.
  struct Blocks {
    std::vector<int> first;     // [P]
    std::vector<int> sent;      // [P] rows that cross to each node
    std::vector<int> received;  // [P] rows that cross from each node
    int batch = 0;              // rows of the batch
  };
  struct RankState {
    CallSequence sequence;
    // Memory of the rank; kernels.h says what is in it.
    int32_t* slots = nullptr;
    int32_t* sent_counts = nullptr;
    HostCounts* host_counts = nullptr;
    Packed sent;
    Packed batch;
    int32_t* topk_idx = nullptr;       // [P * M][N] of the batch
    uint32_t* topk_weights = nullptr;  // [P * M][N], bits of floats
    uint32_t* scales = nullptr;        // [P * M][S]
    // Of the last dispatch.
    Blocks blocks;
    DispatchHandle intranode;
  };

  int num_nodes() const { return rails_.front()->num_nodes(); }
  RankState& StateOf(const Rank& rank) { return states_[Size(rank.rank())]; }
  const RankState& StateOf(const Rank& rank) const { return states_[Size(rank.rank())]; }
  hierarchical::Shape ShapeOf(const Rank& rank) const;
  absl::Status InitRank(Rank& rank);
  absl::Status CheckDispatch(const Rank& rank, const DispatchArgs& args) const;
  // The parts of a dispatch. Each enqueues work on the rank's stream.
  absl::Status Plan(Rank& rank, const DispatchArgs& args);
  // Packs the rows of all nodes. With RailRows::kCounted, waits for the counts.
  absl::Status Arrange(Rank& rank, const DispatchArgs& args);
  // Tells the host the counts of rows for other nodes, as those of `call`.
  absl::Status TellCounts(Rank& rank, uint64_t call);
  // Waits for them and exchanges them.
  absl::Status Count(Rank& rank, uint64_t call);
  // Packs the rows of these nodes, as bits; those of the rank's own from `own_first` on.
  absl::Status Pack(Rank& rank, const DispatchArgs& args, uint32_t nodes, int own_first);
  absl::Status Cross(Rank& rank);
  absl::StatusOr<Received> DispatchWithin(Rank& rank);
  Blocks FullBlocks(int own) const;
  Traffic RailTraffic(int rank, absl::Span<const int32_t> topk_idx, size_t row_bytes) const;

  absl::Status Poison(Rank& rank, int num_rows) override {
    return EpInternals::Poison(*intranode_, rank, num_rows);
  }
  absl::Span<const TraceTag> trace_tags() const override {
    return EpInternals::TraceTags(*intranode_);
  }
  const ExpertParallel* intranode() const override { return intranode_.get(); }

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override {
    return report_.Describe(rank, record);
  }
  absl::Status Recover(Rank& rank) override {
    StateOf(rank).sequence.Void();
    return absl::OkStatus();
  }

  const std::shared_ptr<Node> node_;
  const std::vector<Rail*> rails_;
  const EpConfig config_;
  const bool counted_;
  const hierarchical::RecordShape record_;
  const FlagReport report_;
  std::unique_ptr<ExpertParallel> intranode_;
  NodeMemory memory_;
  std::vector<RankState> states_;  // by local rank
  uint32_t client_ = 0;
};

// The intranode configuration's choices, in that over all nodes.
EpConfig WithChoices(const EpConfig& config, const EpConfig& intranode) {
  EpConfig chosen = intranode;
  chosen.num_experts = config.num_experts;
  chosen.topk = config.topk;
  chosen.max_tokens_per_rank = config.max_tokens_per_rank;
  chosen.combine_order = CombineOrder::kPerNode;
  return chosen;
}

hierarchical::RecordShape RecordOf(const EpConfig& config, int num_nodes) {
  return {.topk = IntranodeConfig(config, {.num_nodes = num_nodes}).topk,
          .scale_words = config.dispatch_format == DispatchFormat::kFp8 ? config.scale_words() : 0};
}

Hierarchical::Hierarchical(Node& node, absl::Span<Rail* const> rails, const EpConfig& config,
                           RailRows rows, std::unique_ptr<ExpertParallel> intranode)
    : node_(node.Share()),
      rails_(rails.begin(), rails.end()),
      config_(WithChoices(config, intranode->config())),
      counted_(ChosenRows(rows, config_.strategy) == RailRows::kCounted),
      record_(RecordOf(config_, num_nodes())),
      report_({}, config.topk),
      intranode_(std::move(intranode)),
      memory_(node),
      states_(Size(node.num_ranks())) {
  client_ = NodeClient::Register(node, this);
}

absl::Status Hierarchical::Init() {
  const size_t row_bytes =
      std::max(config_.dispatch_row_bytes() + record_.bytes(), config_.dtype_row_bytes());
  const size_t bytes = Size(num_nodes() - 1) * Size(config_.max_tokens_per_rank) * row_bytes;
  for (Rail* const rail : rails_) OCTET_RETURN_IF_ERROR(rail->Reserve(bytes, bytes));
  return node_->Run([this](Rank& rank) { return InitRank(rank); });
}

absl::Status Hierarchical::InitRank(Rank& rank) {
  RankState& mine = StateOf(rank);
  const size_t nodes = Size(num_nodes());
  const size_t rows = nodes * Size(config_.max_tokens_per_rank);
  const size_t row_bytes = std::max(config_.dispatch_row_bytes(), config_.dtype_row_bytes());
  const auto device = [&](auto*& data, size_t count) -> absl::Status {
    using T = std::remove_reference_t<decltype(*data)>;
    OCTET_ASSIGN_OR_RETURN(const absl::Span<T> memory, memory_.Device<T>(count));
    data = memory.data();
    return absl::OkStatus();
  };
  OCTET_RETURN_IF_ERROR(device(mine.slots, rows));
  OCTET_RETURN_IF_ERROR(device(mine.sent_counts, nodes));
  for (Packed* packed : {&mine.sent, &mine.batch}) {
    OCTET_ASSIGN_OR_RETURN(const absl::Span<char> memory, memory_.Device<char>(rows * row_bytes));
    packed->rows = memory.data();
    OCTET_RETURN_IF_ERROR(device(packed->records, rows * Size(record_.words())));
  }
  OCTET_RETURN_IF_ERROR(device(mine.topk_idx, rows * Size(record_.topk)));
  OCTET_RETURN_IF_ERROR(device(mine.topk_weights, rows * Size(record_.topk)));
  OCTET_RETURN_IF_ERROR(device(mine.scales, rows * Size(record_.scale_words)));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<HostCounts> counts, memory_.Pinned<HostCounts>(1));
  mine.host_counts = counts.data();
  mine.host_counts->call = 0;
  return OCTET_GPU(hierarchical::LoadKernels(config_.dtype == DType::kFloat16));
}

hierarchical::Shape Hierarchical::ShapeOf(const Rank& rank) const {
  return {.num_nodes = num_nodes(),
          .node = rails_[Size(rank.rank())]->node(),
          .max_tokens = config_.max_tokens_per_rank,
          .topk = config_.topk,
          .experts = MakeExpertMap(config_.num_experts, num_nodes()),
          .record = record_};
}

// ---- Dispatch.

absl::Status Hierarchical::CheckDispatch(const Rank& rank, const DispatchArgs& args) const {
  if (!rank.IsOf(*node_)) {
    return absl::FailedPreconditionError(
        "the rank belongs to another node than the one that this ExpertParallel was created on");
  }
  OCTET_RETURN_IF_ERROR(CheckRange("num_tokens", args.num_tokens, 0, config_.max_tokens_per_rank));
  const HighThroughputArgs& own = args.high_throughput;
  if (own.cached != nullptr || own.scatter_idx != nullptr) {
    return absl::InvalidArgumentError(
        "`cached` and scatter_idx must be null in a dispatch over several nodes");
  }
  if (args.num_tokens > 0 && (args.x == nullptr || args.topk_idx == nullptr)) {
    return absl::InvalidArgumentError("x and topk_idx must not be null");
  }
  if ((own.x_scales != nullptr) != (record_.scale_words > 0) &&
      (own.x_scales != nullptr || args.num_tokens > 0)) {
    return absl::InvalidArgumentError(
        "x_scales must be given with DispatchFormat::kFp8 and be null with other formats");
  }
  if (counted_ && IsCapturing(rank.stream())) {
    return absl::FailedPreconditionError(
        "a dispatch with RailRows::kCounted cannot be captured: the host waits for counts, and "
        "nothing is executed before the graph is; use RailRows::kBlocks");
  }
  return CheckPointers(rank, {{"x", args.x},
                              {"topk_idx", args.topk_idx},
                              {"topk_weights", args.topk_weights},
                              {"x_scales", own.x_scales}});
}

absl::Status Hierarchical::Plan(Rank& rank, const DispatchArgs& args) {
  const RankState& mine = StateOf(rank);
  return OCTET_GPU(hierarchical::LaunchPlan({.shape = ShapeOf(rank),
                                             .failure = NodeClient::PortOf(rank, client_),
                                             .topk_idx = args.topk_idx,
                                             .num_tokens = args.num_tokens,
                                             .slots = mine.slots,
                                             .counts = mine.sent_counts},
                                            rank.stream()));
}

Hierarchical::Blocks Hierarchical::FullBlocks(int own) const {
  Blocks blocks;
  for (int node = 0; node < num_nodes(); ++node) {
    const int rows = node == own ? 0 : config_.max_tokens_per_rank;
    blocks.first.push_back(node * config_.max_tokens_per_rank);
    blocks.sent.push_back(rows);
    blocks.received.push_back(rows);
  }
  blocks.batch = num_nodes() * config_.max_tokens_per_rank;
  return blocks;
}

absl::Status Hierarchical::TellCounts(Rank& rank, uint64_t call) {
  const RankState& mine = StateOf(rank);
  return OCTET_GPU(hierarchical::LaunchTellCounts({.failure = NodeClient::PortOf(rank, client_),
                                                   .num_nodes = num_nodes(),
                                                   .sent = mine.sent_counts,
                                                   .call = call,
                                                   .host = mine.host_counts},
                                                  rank.stream()));
}

absl::Status Hierarchical::Count(Rank& rank, uint64_t call) {
  RankState& mine = StateOf(rank);
  Rail& rail = *rails_[Size(rank.rank())];
  HostCounts* const host = mine.host_counts;
  const auto told = [&] {
    return std::atomic_ref(host->call).load(std::memory_order_acquire) == call;
  };
  OCTET_RETURN_IF_ERROR(rank.WaitUntil(told, "the counts of rows for other nodes"));
  if (!told()) return absl::InternalError("a dispatch has ended without its counts");
  std::vector<int32_t> came(Size(num_nodes()));
  OCTET_RETURN_IF_ERROR(rail.ExchangeCounts(rank, absl::MakeConstSpan(host->sent, came.size()),
                                            absl::MakeSpan(came)));
  Blocks blocks;
  for (int node = 0; node < rail.num_nodes(); ++node) {
    const bool own = node == rail.node();
    const int received = own ? host->sent[node] : came[Size(node)];
    if (received < 0 || received > config_.max_tokens_per_rank) {
      return absl::InternalError(absl::StrCat("node ", node, " announces ", received,
                                              " rows; it may send up to max_tokens_per_rank, ",
                                              config_.max_tokens_per_rank));
    }
    blocks.first.push_back(blocks.batch);
    blocks.sent.push_back(own ? 0 : host->sent[node]);
    blocks.received.push_back(own ? 0 : received);
    blocks.batch += received;
  }
  mine.blocks = std::move(blocks);
  return absl::OkStatus();
}

absl::Status Hierarchical::Arrange(Rank& rank, const DispatchArgs& args) {
  RankState& mine = StateOf(rank);
  const int node = rails_[Size(rank.rank())]->node();
  const uint32_t own = uint32_t{1} << node;
  if (!counted_) {
    mine.blocks = FullBlocks(node);
    return Pack(rank, args, ~uint32_t{0}, mine.blocks.first[Size(node)]);
  }
  // What needs no counts is done while they cross.
  const uint64_t call = mine.host_counts->call + 1;
  OCTET_RETURN_IF_ERROR(TellCounts(rank, call));
  OCTET_RETURN_IF_ERROR(Pack(rank, args, ~own, 0));
  OCTET_RETURN_IF_ERROR(Count(rank, call));
  return Pack(rank, args, own, mine.blocks.first[Size(node)]);
}

absl::Status Hierarchical::Pack(Rank& rank, const DispatchArgs& args, uint32_t nodes,
                                int own_first) {
  const RankState& mine = StateOf(rank);
  return OCTET_GPU(hierarchical::LaunchPack(
      {.shape = ShapeOf(rank),
       .x = args.x,
       .topk_idx = args.topk_idx,
       .topk_weights = reinterpret_cast<const uint32_t*>(args.topk_weights),
       .x_scales = static_cast<const uint32_t*>(args.high_throughput.x_scales),
       .num_tokens = args.num_tokens,
       .row_vecs = static_cast<int>(config_.dispatch_row_bytes() / kVecBytes),
       .slots = mine.slots,
       .counts = mine.sent_counts,
       .nodes = nodes,
       .fill = !counted_,
       .sent = mine.sent,
       .batch = mine.batch,
       .own_first = own_first},
      WholeGpu(rank), rank.stream()));
}

absl::Status Hierarchical::Cross(Rank& rank) {
  const RankState& mine = StateOf(rank);
  Rail& rail = *rails_[Size(rank.rank())];
  std::vector<RailPart> parts;
  const auto add = [&](void* sent, void* batch, size_t bytes) {
    for (int node = 0; node < rail.num_nodes(); ++node) {
      const size_t i = Size(node);
      const size_t from = i * Size(config_.max_tokens_per_rank) * bytes;
      parts.push_back({.send = static_cast<char*>(sent) + from,
                       .send_bytes = Size(mine.blocks.sent[i]) * bytes,
                       .recv = static_cast<char*>(batch) + Size(mine.blocks.first[i]) * bytes,
                       .recv_bytes = Size(mine.blocks.received[i]) * bytes});
    }
  };
  add(mine.sent.records, mine.batch.records, record_.bytes());
  add(mine.sent.rows, mine.batch.rows, config_.dispatch_row_bytes());
  return rail.Exchange(rank, parts);
}

absl::StatusOr<Received> Hierarchical::DispatchWithin(Rank& rank) {
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_GPU_ERROR(hierarchical::LaunchSplit({.failure = NodeClient::PortOf(rank, client_),
                                                       .record = record_,
                                                       .records = mine.batch.records,
                                                       .num_rows = mine.blocks.batch,
                                                       .topk_idx = mine.topk_idx,
                                                       .topk_weights = mine.topk_weights,
                                                       .scales = mine.scales},
                                                      WholeGpu(rank), rank.stream()));
  return intranode_->Dispatch(
      rank, {.x = mine.batch.rows,
             .topk_idx = mine.topk_idx,
             .topk_weights = reinterpret_cast<const float*>(mine.topk_weights),
             .num_tokens = mine.blocks.batch,
             .high_throughput = {.x_scales = record_.scale_words > 0 ? mine.scales : nullptr}});
}

absl::StatusOr<Received> Hierarchical::Dispatch(Rank& rank, const DispatchArgs& args) {
  OCTET_RETURN_IF_ERROR(CheckDispatch(rank, args));
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_ERROR(mine.sequence.CheckDispatch(Phases::kBoth));
  OCTET_RETURN_IF_ERROR(Plan(rank, args));
  OCTET_RETURN_IF_ERROR(Arrange(rank, args));
  OCTET_RETURN_IF_ERROR(Cross(rank));
  OCTET_ASSIGN_OR_RETURN(Received received, DispatchWithin(rank));
  mine.intranode = received.handle;
  mine.sequence.RecordDispatch(Phases::kBoth);
  received.handle = {.call = mine.sequence.calls(),
                     .num_tokens = args.num_tokens,
                     .topk_idx = args.topk_idx,
                     .topk_weights = args.topk_weights,
                     .owner = this,
                     .owner_id = client_,
                     .rank = rank.rank()};
  return received;
}

// ---- Combine.

absl::Status Hierarchical::CheckReceivedIsValid(const Rank& rank,
                                                const DispatchHandle& handle) const {
  if (!rank.IsOf(*node_) || handle.owner != this || handle.owner_id != client_ ||
      handle.rank != rank.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the handle is not of a dispatch of this ExpertParallel on rank ", rank.rank(),
                     "; only the rank that has dispatched can combine"));
  }
  return StateOf(rank).sequence.CheckRecent(handle.call);
}

absl::Status Hierarchical::CheckCombine(const Rank& rank, const DispatchHandle& handle,
                                        const CombineArgs& args) const {
  OCTET_RETURN_IF_ERROR(CheckReceivedIsValid(rank, handle));
  OCTET_RETURN_IF_ERROR(StateOf(rank).sequence.CheckCombine(handle.call, Phases::kBoth));
  if (args.expert_out == nullptr || (args.y == nullptr && handle.num_tokens > 0)) {
    return absl::InvalidArgumentError("expert_out and y must not be null");
  }
  return CheckPointers(rank, {{"expert_out", args.expert_out},
                              {"y", args.y},
                              {"expert_scale", args.expert_scale, alignof(float)},
                              {"bias", args.bias}});
}

absl::Status Hierarchical::Combine(Rank& rank, const DispatchHandle& handle,
                                   const CombineArgs& args) {
  OCTET_RETURN_IF_ERROR(CheckCombine(rank, handle, args));
  RankState& mine = StateOf(rank);
  Rail& rail = *rails_[Size(rank.rank())];
  CombineArgs within = args;
  within.y = mine.batch.rows;
  within.bias = nullptr;
  OCTET_RETURN_IF_ERROR(intranode_->Combine(rank, mine.intranode, within));
  const size_t bytes = config_.dtype_row_bytes();
  const auto row = [bytes](void* rows, int i) {
    return static_cast<char*>(rows) + Size(i) * bytes;
  };
  std::vector<RailPart> parts;
  for (int node = 0; node < rail.num_nodes(); ++node) {
    const Blocks& blocks = mine.blocks;
    parts.push_back({.send = row(mine.batch.rows, blocks.first[Size(node)]),
                     .send_bytes = Size(blocks.received[Size(node)]) * bytes,
                     .recv = row(mine.sent.rows, node * config_.max_tokens_per_rank),
                     .recv_bytes = Size(blocks.sent[Size(node)]) * bytes});
  }
  OCTET_RETURN_IF_ERROR(rail.Exchange(rank, parts));
  OCTET_RETURN_IF_GPU_ERROR(hierarchical::LaunchAddNodes(
      {.shape = ShapeOf(rank),
       .failure = NodeClient::PortOf(rank, client_),
       .num_tokens = handle.num_tokens,
       .row_vecs = static_cast<int>(bytes / kVecBytes),
       .slots = mine.slots,
       .own = row(mine.batch.rows, mine.blocks.first[Size(rail.node())]),
       .returned = mine.sent.rows,
       .bias = args.bias,
       .y = args.y},
      config_.dtype == DType::kFloat16, WholeGpu(rank), rank.stream()));
  mine.sequence.RecordCombine(handle.call, Phases::kBoth);
  return absl::OkStatus();
}

// ---- Traffic.

Traffic Hierarchical::RailTraffic(int rank, absl::Span<const int32_t> topk_idx,
                                  size_t row_bytes) const {
  const int own = rails_[Size(rank)]->node();
  const ExpertMap experts = MakeExpertMap(config_.num_experts, num_nodes());
  const size_t topk = Size(config_.topk);
  Traffic traffic;
  for (size_t token = 0; token + topk <= topk_idx.size(); token += topk) {
    uint32_t nodes = 0;
    for (const int32_t id : topk_idx.subspan(token, topk)) {
      if (experts.IsExpert(id)) nodes |= uint32_t{1} << experts.RankOf(id);
    }
    traffic.rows += std::popcount(nodes & ~(uint32_t{1} << own));
  }
  traffic.logical_bytes = traffic.rows * static_cast<int64_t>(row_bytes);
  const int64_t crossing =
      counted_ ? traffic.rows : static_cast<int64_t>(num_nodes() - 1) * config_.max_tokens_per_rank;
  traffic.wire_bytes = crossing * static_cast<int64_t>(row_bytes);
  return traffic;
}

Traffic Hierarchical::DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  Traffic traffic = RailTraffic(rank, topk_idx, config_.dispatch_row_bytes() + record_.bytes());
  if (counted_) traffic.wire_bytes += (num_nodes() - 1) * static_cast<int64_t>(sizeof(int32_t));
  return traffic;
}

Traffic Hierarchical::CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  return RailTraffic(rank, topk_idx, config_.dtype_row_bytes());
}

}  // namespace

RailRows ChosenRows(RailRows rows, Strategy strategy) {
  if (rows != RailRows::kAuto) return rows;
  return strategy == Strategy::kLowLatency ? RailRows::kBlocks : RailRows::kCounted;
}

size_t RailRecordBytes(const EpConfig& config, int num_nodes) {
  return RecordOf(config, num_nodes).bytes();
}

absl::Status ValidateHierarchical(const EpConfig& config, const NodesOfRanks& nodes) {
  OCTET_RETURN_IF_ERROR(CheckRange("num_nodes", nodes.num_nodes, 1, kMaxNodes));
  OCTET_RETURN_IF_ERROR(CheckRange("num_experts", config.num_experts, 1, kMaxExperts));
  OCTET_RETURN_IF_ERROR(CheckRange("topk", config.topk, 1, std::min(kMaxTopk, config.num_experts)));
  OCTET_RETURN_IF_ERROR(
      CheckRange("max_tokens_per_rank", config.max_tokens_per_rank, 1, kMaxTokensPerRank));
  if (config.num_experts % nodes.num_nodes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_experts is ", config.num_experts,
                                                   "; it must be divisible by the ",
                                                   nodes.num_nodes, " nodes"));
  }
  if (config.combine_order != CombineOrder::kAuto &&
      config.combine_order != CombineOrder::kPerNode) {
    return absl::InvalidArgumentError(absl::StrCat(
        "combine_order is ", EnumName(config.combine_order),
        "; over several nodes it must be auto or per_node (HierarchicalOptions::intranode_order "
        "is the order within a node)"));
  }
  if (config.low_latency.failure_policy == FailurePolicy::kMask) {
    return absl::InvalidArgumentError("failure_policy mask is for a single node");
  }
  absl::Status status = Validate(IntranodeConfig(config, nodes), nodes.ranks_per_node);
  if (status.ok() || nodes.num_nodes == 1) return status;
  return absl::InvalidArgumentError(absl::StrCat("within a node, with E / ", nodes.num_nodes,
                                                 " experts and ", nodes.num_nodes,
                                                 " M tokens: ", status.message()));
}

absl::StatusOr<NodesOfRanks> NodesOnRails(const Node& node, absl::Span<Rail* const> rails,
                                          CombineOrder intranode_order) {
  if (rails.size() != Size(node.num_ranks())) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", rails.size(), " rails for ",
                                                   node.num_ranks(),
                                                   " ranks; each rank needs one"));
  }
  return NodesOfRanks{.num_nodes = rails.front()->num_nodes(),
                      .ranks_per_node = node.num_ranks(),
                      .intranode_order = intranode_order};
}

absl::StatusOr<std::unique_ptr<CheckedEp>> MakeCheckedHierarchical(
    Node& node, absl::Span<Rail* const> rails, const EpConfig& config,
    const HierarchicalOptions& options) {
  OCTET_ASSIGN_OR_RETURN(const NodesOfRanks nodes,
                         NodesOnRails(node, rails, options.intranode_order));
  OCTET_RETURN_IF_ERROR(ValidateHierarchical(config, nodes));
  OCTET_ASSIGN_OR_RETURN(
      std::unique_ptr<ExpertParallel> intranode,
      ExpertParallel::Create(node, IntranodeConfig(config, nodes), options.intranode));
  auto made =
      std::make_unique<Hierarchical>(node, rails, config, options.rows, std::move(intranode));
  OCTET_RETURN_IF_ERROR(made->Init());
  return made;
}

absl::StatusOr<std::unique_ptr<ExpertParallel>> MakeHierarchical(
    Node& node, absl::Span<Rail* const> rails, const EpConfig& config,
    const HierarchicalOptions& options) {
  return MakeCheckedHierarchical(node, rails, config, options);
}

std::string HierarchicalText(const EpConfig& config, const HierarchicalOptions& options) {
  const HighThroughputOptions& throughput = config.high_throughput;
  std::string text = absl::StrCat(
      "experts ", config.num_experts, ", topk ", config.topk, ", hidden ", config.hidden,
      ", max_tokens_per_rank ", config.max_tokens_per_rank, ", ", EnumName(config.dtype),
      ", strategy ", EnumName(config.strategy), ", combine_order ", EnumName(config.combine_order),
      ", dispatch_format ", EnumName(config.dispatch_format), ", output ", EnumName(config.output));
  absl::StrAppend(&text, ", scales ", EnumName(config.scale_format), " of ", config.scale_group,
                  ", duplicates ", EnumName(throughput.duplicates), ", expert_alignment ",
                  throughput.expert_alignment, ", row_bytes ", throughput.row_bytes, ", rows ",
                  EnumName(options.rows), ", intranode_order ", EnumName(options.intranode_order));
  return text;
}

absl::Span<const EnumEntry<RailRows>> EnumTable(RailRows /*unused*/) {
  static constexpr EnumEntry<RailRows> kTable[] = {
      {RailRows::kAuto, "auto"}, {RailRows::kBlocks, "blocks"}, {RailRows::kCounted, "counted"}};
  return kTable;
}

}  // namespace octet
