#include "tools/measure/probe/rail_test.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/nodes/options.h"
#include "octet/graph.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/gpu/scoped_event.h"
#include "runtime/memory/device_memory.h"
#include "runtime/net/rails/rail.h"
#include "tools/support/statistics.h"

namespace octet {
namespace {

constexpr int kWarmup = 2;

// The byte that all bytes from `global` to `node` are. Neighbours differ.
uint8_t PatternOf(int global, int node) { return static_cast<uint8_t>(1 + global * 37 + node * 5); }

int64_t Sum(const std::vector<int64_t>& rows) {
  int64_t sum = 0;
  for (const int64_t each : rows) sum += each;
  return sum;
}

class RailTest {
 public:
  RailTest(Domain& domain, DomainBarrier barrier, const RailRowCounts& rows, int64_t row_bytes)
      : domain_(domain),
        barrier_(std::move(barrier)),
        rows_(rows),
        row_bytes_(row_bytes),
        ranks_(Size(domain.ranks_per_node())) {}

  absl::StatusOr<RailFigures> Measure(const RailTiming& timing);

 private:
  struct OfRank {
    DeviceMemory sent, received;
    std::vector<RailPart> parts;
    std::optional<Graph> graph;  // is destroyed outside of Run
    std::vector<double> us;
  };

  absl::Status Reserve();
  absl::Status Init(Rank& rank);
  absl::Status Exchange(Rank& rank) {
    return domain_.rail(rank.rank())->Exchange(rank, ranks_[Size(rank.rank())].parts);
  }
  absl::Status Check(Rank& rank);
  absl::Status Time(Rank& rank, const RailTiming& timing);
  // Returns the time of each exchange on the slowest rank of all nodes, and the most bytes.
  absl::StatusOr<RailFigures> Gather();

  Domain& domain_;
  DomainBarrier barrier_;
  const RailRowCounts& rows_;
  const int64_t row_bytes_;
  std::vector<OfRank> ranks_;
};

absl::Status RailTest::Reserve() {
  absl::Status reserved;
  for (int r = 0; r < domain_.ranks_per_node(); ++r) {
    reserved.Update(domain_.rail(r)->Reserve(Size(Sum(rows_.sent[Size(r)]) * row_bytes_),
                                             Size(Sum(rows_.received[Size(r)]) * row_bytes_)));
  }
  return domain_.Together(reserved);
}

absl::Status RailTest::Init(Rank& rank) {
  OfRank& mine = ranks_[Size(rank.rank())];
  const std::vector<int64_t>& sent = rows_.sent[Size(rank.rank())];
  const std::vector<int64_t>& received = rows_.received[Size(rank.rank())];
  OCTET_ASSIGN_OR_RETURN(mine.sent, DeviceMemory::Allocate(Size(Sum(sent) * row_bytes_)));
  OCTET_ASSIGN_OR_RETURN(mine.received, DeviceMemory::Allocate(Size(Sum(received) * row_bytes_)));
  char* from = mine.sent.as<char>();
  char* to = mine.received.as<char>();
  for (size_t n = 0; n < sent.size(); ++n) {
    const RailPart part = {.send = from,
                           .send_bytes = Size(sent[n] * row_bytes_),
                           .recv = to,
                           .recv_bytes = Size(received[n] * row_bytes_)};
    if (part.send_bytes > 0) {
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemsetAsync(from, PatternOf(domain_.GlobalRank(rank.rank()), static_cast<int>(n)),
                         part.send_bytes, rank.stream()));
    }
    if (part.recv_bytes > 0) {
      OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(to, 0, part.recv_bytes, rank.stream()));
    }
    from += part.send_bytes;
    to += part.recv_bytes;
    mine.parts.push_back(part);
  }
  return rank.Synchronize();
}

absl::Status RailTest::Check(Rank& rank) {
  OCTET_RETURN_IF_ERROR(Exchange(rank));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  const OfRank& mine = ranks_[Size(rank.rank())];
  for (size_t n = 0; n < mine.parts.size(); ++n) {
    const RailPart& part = mine.parts[n];
    if (part.recv_bytes == 0) continue;
    std::vector<uint8_t> bytes(part.recv_bytes);
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemcpy(bytes.data(), part.recv, bytes.size(), hipMemcpyDeviceToHost));
    const int source = static_cast<int>(n) * domain_.ranks_per_node() + rank.rank();
    const uint8_t want = PatternOf(source, domain_.node_index());
    const auto wrong =
        std::find_if(bytes.begin(), bytes.end(), [want](uint8_t byte) { return byte != want; });
    if (wrong == bytes.end()) continue;
    return absl::DataLossError(absl::StrCat("byte ", wrong - bytes.begin(), " of ", bytes.size(),
                                            " that node ", n, " has sent on rail ", rank.rank(),
                                            " is ", *wrong, ", not ", want));
  }
  return absl::OkStatus();
}

absl::Status RailTest::Time(Rank& rank, const RailTiming& timing) {
  OCTET_ASSIGN_OR_RETURN(ScopedEvent start, ScopedEvent::Create());
  OCTET_ASSIGN_OR_RETURN(ScopedEvent stop, ScopedEvent::Create());
  std::optional<Graph>& graph = ranks_[Size(rank.rank())].graph;
  if (timing.graph) {
    OCTET_ASSIGN_OR_RETURN(graph, Graph::Capture(rank, [&] { return Exchange(rank); }));
  }
  for (int i = 0; i < kWarmup + timing.iters; ++i) {
    OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));
    if (timing.align == Align::kDevice) OCTET_RETURN_IF_ERROR(barrier_.Enqueue(rank));
    OCTET_RETURN_IF_ERROR(start.Record(rank.stream()));
    OCTET_RETURN_IF_ERROR(graph.has_value() ? graph->Launch(rank) : Exchange(rank));
    OCTET_RETURN_IF_ERROR(stop.Record(rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_ASSIGN_OR_RETURN(const double us, stop.MicrosecondsSince(start));
    if (i >= kWarmup) ranks_[Size(rank.rank())].us.push_back(us);
  }
  return absl::OkStatus();
}

absl::StatusOr<RailFigures> RailTest::Gather() {
  std::vector<double> us(ranks_.front().us.size());
  int64_t bytes = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    bytes = std::max({bytes, Sum(rows_.sent[r]) * row_bytes_, Sum(rows_.received[r]) * row_bytes_});
    for (size_t i = 0; i < us.size(); ++i) us[i] = std::max(us[i], ranks_[r].us[i]);
  }
  us.push_back(static_cast<double>(bytes));
  RailFigures figures;
  OCTET_ASSIGN_OR_RETURN(figures.us, Largest(domain_, us));
  figures.bytes = static_cast<int64_t>(figures.us.back());
  figures.us.pop_back();
  figures.gbps = Gbps(figures.bytes, Summarize(figures.us).median);
  return figures;
}

absl::StatusOr<RailFigures> RailTest::Measure(const RailTiming& timing) {
  OCTET_RETURN_IF_ERROR(Reserve());
  OCTET_RETURN_IF_ERROR(domain_.Run([this](Rank& rank) { return Init(rank); }));
  OCTET_RETURN_IF_ERROR(domain_.Run([this](Rank& rank) { return Check(rank); }));
  OCTET_RETURN_IF_ERROR(domain_.Run([&](Rank& rank) { return Time(rank, timing); }));
  return Gather();
}

}  // namespace

RailRowCounts CountRailRows(const EpConfig& config, const NodesOfRanks& nodes, RailRows rows,
                            absl::Span<const RankInput> inputs, int node) {
  const bool blocks = ChosenRows(rows, config.strategy) == RailRows::kBlocks;
  const int of_node = config.num_experts / nodes.num_nodes;
  // Returns the rows of a rank for node `to`.
  const auto count = [&](int rank, int to) -> int64_t {
    if (blocks) return config.max_tokens_per_rank;
    const RankInput& input = inputs[Size(rank)];
    int64_t tokens = 0;
    for (int t = 0; t < input.num_tokens; ++t) {
      const auto ids = input.topk_idx.subspan(Size(t) * Size(config.topk), Size(config.topk));
      tokens += std::any_of(ids.begin(), ids.end(),
                            [&](int32_t id) { return id >= 0 && id / of_node == to; })
                    ? 1
                    : 0;
    }
    return tokens;
  };
  RailRowCounts counts;
  for (int local = 0; local < nodes.ranks_per_node; ++local) {
    std::vector<int64_t>& sent = counts.sent.emplace_back();
    std::vector<int64_t>& received = counts.received.emplace_back();
    for (int other = 0; other < nodes.num_nodes; ++other) {
      const bool own = other == node;
      sent.push_back(own ? 0 : count(node * nodes.ranks_per_node + local, other));
      received.push_back(own ? 0 : count(other * nodes.ranks_per_node + local, node));
    }
  }
  return counts;
}

absl::StatusOr<RailFigures> MeasureRail(Domain& domain, const RailRowCounts& rows,
                                        int64_t row_bytes, const RailTiming& timing) {
  OCTET_ASSIGN_OR_RETURN(DomainBarrier barrier, DomainBarrier::Create(domain));
  return RailTest(domain, std::move(barrier), rows, row_bytes).Measure(timing);
}

}  // namespace octet
