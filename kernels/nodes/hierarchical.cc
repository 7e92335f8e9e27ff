#include "kernels/nodes/hierarchical.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/base/call_sequence.h"
#include "kernels/ep/base/check_tensors.h"
#include "kernels/ep/base/flag_report.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/ep/base/whole_gpu.h"
#include "kernels/ep/config_checks.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/ep/site_info.h"
#include "kernels/nodes/batch.h"
#include "kernels/nodes/kernels.h"
#include "kernels/nodes/options.h"
#include "kernels/nodes/rail_traffic.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/gpu/side_stream.h"
#include "runtime/memory/node_memory.h"
#include "runtime/net/outcome.h"
#include "runtime/net/rails/rail.h"
#include "runtime/node/capture.h"
#include "runtime/node/node_client.h"

namespace octet {
namespace {

using hierarchical::BatchRows;
using hierarchical::Direction;
using hierarchical::HostCounts;
using hierarchical::Packed;

int WaveSizeOf(const Rank& rank) {
  return rank.node().topology().gpus[Size(rank.rank())].wave_size;
}

class Hierarchical : public EpCalls, private NodeClient {
 public:
  Hierarchical(Node& node, std::vector<Rail*> rails, const EpConfig& config,
               const ExpertParallelOptions& options, std::unique_ptr<EpCalls> intranode);
  ~Hierarchical() override;

  // Must be called once, before anything else and not during Run.
  absl::Status Init();

  const EpConfig& config() const override { return config_; }
  absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchRequest& request) override;
  absl::Status Combine(Rank& rank, const CombineRequest& request) override;
  absl::StatusOr<EpStatistics> Statistics(Rank& rank) override {
    return intranode_->Statistics(rank);
  }
  absl::Status ResetStatistics(Rank& rank) override { return intranode_->ResetStatistics(rank); }
  Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const override {
    return RailTrafficOn(rank).OfDispatch(topk_idx);
  }
  Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const override {
    return RailTrafficOn(rank).OfCombine(topk_idx);
  }
  absl::Status CheckDispatch(const Rank& rank, const DispatchRequest& request,
                             Phases phases) const override;
  absl::Status CheckCombine(const Rank& rank, const CombineRequest& request) const override;
  absl::Status CheckReceivedIsValid(const Rank& rank, const DispatchHandle& handle) const override;
  absl::Span<const TraceTag> trace_tags() const override { return intranode_->trace_tags(); }
  std::vector<std::pair<void*, size_t>> Delivered(const Rank& rank, size_t rows) const override {
    return intranode_->Delivered(rank, rows);
  }
  const EpCalls* intranode() const override { return intranode_.get(); }

 private:
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
    int32_t* begin = nullptr;          // of departures
    // With several chunks.
    RowArrivals arrivals;
    RowDepartures departures;
    SideStream side;     // for chunks of rows that cross beside a call within the node
    uint32_t calls = 0;  // whose counts the host has waited for
    // Of the last dispatch.
    BatchRows rows;
    DispatchHandle intranode;
  };

  int num_nodes() const { return rails_.front()->num_nodes(); }
  RankState& StateOf(const Rank& rank) { return states_[Size(rank.rank())]; }
  const RankState& StateOf(const Rank& rank) const { return states_[Size(rank.rank())]; }
  hierarchical::Shape ShapeOf(const Rank& rank) const;
  absl::Status InitRank(Rank& rank);
  absl::Status InitChunks(Rank& rank);
  // The parts of a dispatch. Each enqueues work on the rank's stream.
  absl::Status Plan(Rank& rank, const DispatchArgs& args);
  // Packs the rows of all nodes. With RailRows::kCounted, waits for the counts.
  absl::Status Arrange(Rank& rank, const DispatchArgs& args);
  // Waits for the counts of rows for other nodes and exchanges them.
  absl::Status Count(Rank& rank);
  absl::Status Pack(Rank& rank, const DispatchArgs& args);
  // Exchanges all records and the rows of the first chunk.
  absl::Status CrossFirst(Rank& rank);
  // Exchanges the rows of the other chunks on the side stream.
  absl::Status CrossOthers(Rank& rank);
  absl::Status Split(Rank& rank);
  // Lets the other chunks cross while the dispatch within the node runs.
  absl::StatusOr<Received> DispatchBeside(Rank& rank);
  absl::StatusOr<Received> DispatchWithin(Rank& rank);
  // The way back of a combine: at once, or a chunk as soon as the combine within the node, which
  // has been enqueued, has made its rows.
  absl::Status Return(Rank& rank);
  absl::Status ReturnBeside(Rank& rank);
  absl::Status ReturnChunk(Rank& rank, int chunk);
  device::FailurePort PatientPort(const Rank& rank) const;
  // Returns how the rows of a dispatch or of a combine cross.
  hierarchical::RailMemory MemoryOfRows(const RankState& mine, Direction direction) const {
    return {.sent = static_cast<char*>(mine.sent.rows),
            .batch = static_cast<char*>(mine.batch.rows),
            .bytes = direction == Direction::kToBatch ? config_.dispatch_row_bytes()
                                                      : config_.dtype_row_bytes(),
            .direction = direction};
  }
  hierarchical::RailTraffic RailTrafficOn(int rank) const {
    return {config_, num_nodes(), rails_[Size(rank)]->node(), counted_};
  }

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;
  absl::Status Recover(Rank& rank) override {
    StateOf(rank).sequence.Void();
    return absl::OkStatus();
  }

  const std::shared_ptr<Node> node_;
  const std::vector<Rail*> rails_;
  const EpConfig config_;
  const bool counted_;
  const hierarchical::Chunks chunks_;
  const hierarchical::RecordShape record_;
  const FlagReport report_;
  const std::unique_ptr<EpCalls> intranode_;
  NodeMemory memory_;
  std::vector<RankState> states_;  // by local rank
  uint32_t client_ = 0;
};

constexpr SiteInfo kSites[] = {{.number = static_cast<uint32_t>(hierarchical::Site::kChunk),
                                .phase = "dispatch-send",
                                .flag = "rows of other nodes, chunk"},
                               {.number = static_cast<uint32_t>(hierarchical::Site::kReturn),
                                .phase = "combine-receive",
                                .flag = "rows for other nodes, chunk"}};

Hierarchical::Hierarchical(Node& node, std::vector<Rail*> rails, const EpConfig& config,
                           const ExpertParallelOptions& options, std::unique_ptr<EpCalls> intranode)
    : node_(node.Share()),
      rails_(std::move(rails)),
      config_(WithChoices(config, intranode->config())),
      counted_(ChosenRows(options.rails.rows, config_.strategy) == RailRows::kCounted),
      chunks_(ChunksOf(config, options.rails.chunk_tokens)),
      record_(RecordOf(config_, num_nodes())),
      report_(kSites, config.topk),
      intranode_(std::move(intranode)),
      memory_(node),
      states_(Size(node.num_ranks())) {
  client_ = NodeClient::Register(node, this);
}

Hierarchical::~Hierarchical() {
  NodeClient::Unregister(*node_, client_);
  if (chunks_.count == 1 || node_->ReadyToFree()) return;
  for (RankState& state : states_) state.side.Abandon();
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
  *mine.host_counts = {};
  if (chunks_.count > 1) OCTET_RETURN_IF_ERROR(InitChunks(rank));
  return OCTET_GPU(hierarchical::LoadKernels(config_.dtype == DType::kFloat16));
}

absl::Status Hierarchical::InitChunks(Rank& rank) {
  RankState& mine = StateOf(rank);
  const size_t count = Size(chunks_.count);
  OCTET_ASSIGN_OR_RETURN(mine.side, SideStream::Create());
  OCTET_ASSIGN_OR_RETURN(const absl::Span<uint64_t> arrived, memory_.Device<uint64_t>(1));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<uint64_t> stored, memory_.Device<uint64_t>(count));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<int32_t> begin, memory_.Device<int32_t>(1));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<int32_t> ends, memory_.Device<int32_t>(count));
  mine.begin = begin.data();
  mine.arrivals = {.port = PatientPort(rank),
                   .site = static_cast<uint32_t>(hierarchical::Site::kChunk),
                   .num_chunks = chunks_.count,
                   .arrived = arrived.data(),
                   .ends = ends.data()};
  mine.departures = {.num_chunks = chunks_.count,
                     .begin = begin.data(),
                     .ends = ends.data(),
                     .stored = stored.data()};
  return absl::OkStatus();
}

device::FailurePort Hierarchical::PatientPort(const Rank& rank) const {
  // The rail and the calls within the node have the node's deadline, and are to report first.
  device::FailurePort port = NodeClient::PortOf(rank, client_);
  port.deadline_ticks *= 2;
  return port;
}

hierarchical::Shape Hierarchical::ShapeOf(const Rank& rank) const {
  return {.num_nodes = num_nodes(),
          .node = rails_[Size(rank.rank())]->node(),
          .max_tokens = config_.max_tokens_per_rank,
          .topk = config_.topk,
          .experts = MakeExpertMap(config_.num_experts, num_nodes()),
          .record = record_};
}

absl::Status Hierarchical::Describe(int rank, const device::FailureRecord& record) const {
  if (record.site != static_cast<uint32_t>(hierarchical::Site::kRecord)) {
    return report_.Describe(rank, record);
  }
  const auto topk = static_cast<uint32_t>(record_.topk);
  return WithFailure(RecordedFailure(rank, record, kExchangePhase, "a record"),
                     absl::InternalError(absl::StrCat(
                         kExchangePhase, ": what has come for row ", record.index / topk,
                         " of the batch is no record: id ", record.index % topk, " is ",
                         static_cast<int64_t>(record.seen), "; a node sends -1 or one from 0 to ",
                         record.expected - 1, ", each once")));
}

// ---- Dispatch.

absl::Status Hierarchical::CheckDispatch(const Rank& rank, const DispatchRequest& request,
                                         Phases phases) const {
  const DispatchArgs& args = request.args;
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
  OCTET_RETURN_IF_ERROR(CheckDispatchTensors(rank, config_, args));
  return StateOf(rank).sequence.CheckDispatch(phases);
}

absl::Status Hierarchical::Plan(Rank& rank, const DispatchArgs& args) {
  RankState& mine = StateOf(rank);
  if (counted_) ++mine.calls;
  return OCTET_GPU(hierarchical::LaunchPlan({.shape = ShapeOf(rank),
                                             .failure = NodeClient::PortOf(rank, client_),
                                             .topk_idx = args.topk_idx,
                                             .num_tokens = args.num_tokens,
                                             .slots = mine.slots,
                                             .counts = mine.sent_counts,
                                             .host = counted_ ? mine.host_counts : nullptr,
                                             .call = mine.calls,
                                             .arrivals = mine.arrivals,
                                             .departures = mine.departures},
                                            WaveSizeOf(rank), rank.stream()));
}

absl::Status Hierarchical::Count(Rank& rank) {
  RankState& mine = StateOf(rank);
  Rail& rail = *rails_[Size(rank.rank())];
  std::vector<int32_t> sent(Size(num_nodes()));
  const auto told = [&] {
    for (size_t node = 0; node < sent.size(); ++node) {
      const uint64_t word =
          std::atomic_ref(mine.host_counts->of_node[node]).load(std::memory_order_relaxed);
      if (word >> 32 != mine.calls) return false;
      sent[node] = static_cast<int32_t>(word);
    }
    return true;
  };
  OCTET_RETURN_IF_ERROR(rank.WaitUntil(told, "the counts of rows for other nodes"));
  if (!told()) return absl::InternalError("a dispatch has ended without its counts");
  std::vector<int32_t> came(sent.size());
  OCTET_RETURN_IF_ERROR(rail.ExchangeCounts(rank, sent, absl::MakeSpan(came)));
  for (int node = 0; node < rail.num_nodes(); ++node) {
    const int received = came[Size(node)];
    if (received < 0 || received > config_.max_tokens_per_rank) {
      return absl::InternalError(absl::StrCat("node ", node, " announces ", received,
                                              " rows; it may send up to max_tokens_per_rank, ",
                                              config_.max_tokens_per_rank));
    }
  }
  const int own = std::exchange(sent[Size(rail.node())], 0);
  mine.rows = LayOutBatch(chunks_, own, sent, came);
  return absl::OkStatus();
}

absl::Status Hierarchical::Arrange(Rank& rank, const DispatchArgs& args) {
  RankState& mine = StateOf(rank);
  if (!counted_) {
    std::vector<int> full(Size(num_nodes()), config_.max_tokens_per_rank);
    full[Size(rails_[Size(rank.rank())]->node())] = 0;
    mine.rows = LayOutBatch(chunks_, config_.max_tokens_per_rank, full, full);
    return Pack(rank, args);
  }
  // What needs no counts is done while they cross.
  OCTET_RETURN_IF_ERROR(Pack(rank, args));
  return Count(rank);
}

absl::Status Hierarchical::Pack(Rank& rank, const DispatchArgs& args) {
  const RankState& mine = StateOf(rank);
  // Of blocks the unused rows are marked, too.
  const int waves = counted_ ? args.num_tokens : config_.max_tokens_per_rank;
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
       .fill = !counted_,
       .sent = mine.sent,
       .batch = mine.batch},
      WholeGpuForWaves(rank, waves), rank.stream()));
}

absl::Status Hierarchical::CrossFirst(Rank& rank) {
  const RankState& mine = StateOf(rank);
  const hierarchical::RailMemory records = {.sent = reinterpret_cast<char*>(mine.sent.records),
                                            .batch = reinterpret_cast<char*>(mine.batch.records),
                                            .bytes = record_.bytes()};
  std::vector<RailPart> parts;
  for (int chunk = 0; chunk < chunks_.count; ++chunk) {
    AddParts(chunks_, mine.rows, chunk, records, parts);
  }
  AddParts(chunks_, mine.rows, 0, MemoryOfRows(mine, Direction::kToBatch), parts);
  return rails_[Size(rank.rank())]->Exchange(rank, parts);
}

absl::Status Hierarchical::CrossOthers(Rank& rank) {
  RankState& mine = StateOf(rank);
  const hipStream_t stream = mine.side.stream();
  const hierarchical::RailMemory rows = MemoryOfRows(mine, Direction::kToBatch);
  OCTET_RETURN_IF_ERROR(mine.side.Fork());
  for (int chunk = 1; chunk < chunks_.count; ++chunk) {
    std::vector<RailPart> parts;
    AddParts(chunks_, mine.rows, chunk, rows, parts);
    OCTET_RETURN_IF_ERROR(rails_[Size(rank.rank())]->ExchangeOn(stream, rank, parts));
    OCTET_RETURN_IF_GPU_ERROR(hierarchical::LaunchMark(
        {.failure = NodeClient::PortOf(rank, client_), .arrivals = mine.arrivals, .chunk = chunk},
        stream));
  }
  return absl::OkStatus();
}

absl::Status Hierarchical::Split(Rank& rank) {
  const RankState& mine = StateOf(rank);
  hierarchical::SplitParams params = {.failure = NodeClient::PortOf(rank, client_),
                                      .record = record_,
                                      .num_experts = config_.num_experts / num_nodes(),
                                      .records = mine.batch.records,
                                      .num_rows = mine.rows.ends.back(),
                                      .topk_idx = mine.topk_idx,
                                      .topk_weights = mine.topk_weights,
                                      .scales = mine.scales,
                                      .arrivals = mine.arrivals,
                                      .ends = {},
                                      .begin = mine.begin,
                                      .own_rows = mine.rows.own};
  absl::c_copy(mine.rows.ends, params.ends);
  const int64_t words = int64_t{params.num_rows} * record_.words();
  return OCTET_GPU(
      hierarchical::LaunchSplit(params, WholeGpuForThreads(rank, words), rank.stream()));
}

absl::StatusOr<Received> Hierarchical::DispatchBeside(Rank& rank) {
  // The other chunks are enqueued before the dispatch, which waits for them.
  const absl::Status crossing = CrossOthers(rank);
  absl::StatusOr<Received> received =
      crossing.ok() ? DispatchWithin(rank) : absl::StatusOr<Received>(crossing);
  absl::Status joined = StateOf(rank).side.Join(rank);
  if (received.ok() && !joined.ok()) return joined;
  return received;
}

absl::StatusOr<Received> Hierarchical::DispatchWithin(Rank& rank) {
  const RankState& mine = StateOf(rank);
  return intranode_->Dispatch(
      rank,
      {.args = {.x = mine.batch.rows,
                .topk_idx = mine.topk_idx,
                .topk_weights = reinterpret_cast<const float*>(mine.topk_weights),
                .num_tokens = mine.rows.ends.back(),
                .high_throughput = {.x_scales = record_.scale_words > 0 ? mine.scales : nullptr}},
       .arrivals = mine.arrivals});
}

absl::StatusOr<Received> Hierarchical::Dispatch(Rank& rank, const DispatchRequest& request) {
  const DispatchArgs& args = request.args;
  OCTET_RETURN_IF_ERROR(CheckDispatch(rank, request, Phases::kBoth));
  RankState& mine = StateOf(rank);
  rails_[Size(rank.rank())]->Wake();
  OCTET_RETURN_IF_ERROR(Plan(rank, args));
  OCTET_RETURN_IF_ERROR(Arrange(rank, args));
  OCTET_RETURN_IF_ERROR(CrossFirst(rank));
  if (chunks_.count > 1) OCTET_RETURN_IF_ERROR(mine.side.MarkFork(rank));
  OCTET_RETURN_IF_ERROR(Split(rank));
  OCTET_ASSIGN_OR_RETURN(Received received,
                         chunks_.count == 1 ? DispatchWithin(rank) : DispatchBeside(rank));
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

absl::Status Hierarchical::CheckCombine(const Rank& rank, const CombineRequest& request) const {
  const DispatchHandle& handle = request.handle;
  OCTET_RETURN_IF_ERROR(CheckReceivedIsValid(rank, handle));
  OCTET_RETURN_IF_ERROR(StateOf(rank).sequence.CheckCombine(handle.call, Phases::kBoth));
  return CheckCombineTensors(rank, config_, num_nodes() * node_->num_ranks(), request);
}

absl::Status Hierarchical::Return(Rank& rank) {
  const RankState& mine = StateOf(rank);
  std::vector<RailPart> parts;
  AddParts(chunks_, mine.rows, 0, MemoryOfRows(mine, Direction::kFromBatch), parts);
  return rails_[Size(rank.rank())]->Exchange(rank, parts);
}

absl::Status Hierarchical::ReturnBeside(Rank& rank) {
  const SideStream& side = StateOf(rank).side;
  absl::Status returned = side.Fork();
  for (int chunk = chunks_.count - 1; chunk >= 0 && returned.ok(); --chunk) {
    returned = ReturnChunk(rank, chunk);
  }
  absl::Status joined = StateOf(rank).side.Join(rank);
  return returned.ok() ? joined : returned;
}

absl::Status Hierarchical::ReturnChunk(Rank& rank, int chunk) {
  const RankState& mine = StateOf(rank);
  const hipStream_t stream = mine.side.stream();
  std::vector<RailPart> parts;
  AddParts(chunks_, mine.rows, chunk, MemoryOfRows(mine, Direction::kFromBatch), parts);
  size_t bytes = 0;
  for (const RailPart& part : parts) bytes += part.send_bytes;
  OCTET_RETURN_IF_GPU_ERROR(hierarchical::LaunchAwaitRows({.failure = PatientPort(rank),
                                                           .departures = mine.departures,
                                                           .chunk = chunk,
                                                           .vecs = bytes / kVecBytes},
                                                          WaveSizeOf(rank), stream));
  return rails_[Size(rank.rank())]->ExchangeOn(stream, rank, parts);
}

absl::Status Hierarchical::Combine(Rank& rank, const CombineRequest& request) {
  OCTET_RETURN_IF_ERROR(CheckCombine(rank, request));
  RankState& mine = StateOf(rank);
  rails_[Size(rank.rank())]->Wake();
  CombineRequest within = request;
  within.handle = mine.intranode;
  within.args.y = mine.batch.rows;
  within.args.bias = nullptr;
  within.departures = mine.departures;
  if (chunks_.count > 1) OCTET_RETURN_IF_ERROR(mine.side.MarkFork(rank));
  OCTET_RETURN_IF_ERROR(intranode_->Combine(rank, within));
  OCTET_RETURN_IF_ERROR(chunks_.count == 1 ? Return(rank) : ReturnBeside(rank));
  OCTET_RETURN_IF_GPU_ERROR(hierarchical::LaunchAddNodes(
      {.shape = ShapeOf(rank),
       .failure = NodeClient::PortOf(rank, client_),
       .num_tokens = request.handle.num_tokens,
       .row_vecs = static_cast<int>(config_.dtype_row_bytes() / kVecBytes),
       .slots = mine.slots,
       .own = mine.batch.rows,
       .returned = mine.sent.rows,
       .bias = request.args.bias,
       .y = request.args.y},
      config_.dtype == DType::kFloat16, WholeGpuForWaves(rank, request.handle.num_tokens),
      rank.stream()));
  mine.sequence.RecordCombine(request.handle.call, Phases::kBoth);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EpCalls>> MakeHierarchical(Domain& domain, const EpConfig& config,
                                                          const ExpertParallelOptions& options) {
  const RailOptions& asked = options.rails;
  const NodesOfRanks nodes = NodesOf(domain, asked.intranode_order);
  OCTET_RETURN_IF_ERROR(ValidateHierarchical(config, nodes, asked.chunk_tokens));
  std::vector<Rail*> rails;
  for (int rank = 0; rank < nodes.ranks_per_node; ++rank) rails.push_back(domain.rail(rank));
  EpConfig within = IntranodeConfig(config, nodes);
  if (ChunksOf(config, asked.chunk_tokens).count > 1) {
    OCTET_RETURN_IF_ERROR(LeaveUnits(domain.node(), rails, within));
  }
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<EpCalls> intranode,
                         MakeStrategy(domain.node(), within, options));
  auto made = std::make_unique<Hierarchical>(domain.node(), std::move(rails), config, options,
                                             std::move(intranode));
  OCTET_RETURN_IF_ERROR(made->Init());
  return made;
}

}  // namespace octet
