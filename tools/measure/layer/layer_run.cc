#include "tools/measure/layer/layer_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/ep/layer_parts.h"
#include "octet/layer_memory.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/scoped_event.h"
#include "tools/measure/layer/layer_contenders.h"
#include "tools/measure/layer/layer_move.h"
#include "tools/measure/layer/layer_work.h"
#include "tools/measure/step/device_timer.h"
#include "tools/step/layer_calls.h"
#include "tools/support/bytes.h"
#include "tools/support/statistics.h"

namespace octet {
namespace {

constexpr size_t kParts = 6;
constexpr std::array<absl::string_view, kParts> kPartNames = {"router", "dispatch", "gate+up",
                                                              "down",   "combine",  "shared"};

// Power limits what matrix units reach: series are short, and the GPUs idle before each.
constexpr int kSeries = 12;
constexpr absl::Duration kIdle = absl::Milliseconds(200);

// The most bytes of an array of one node.
constexpr size_t kMostGathered = size_t{1} << 30;
constexpr size_t kPiece = size_t{1} << 20;

// Records an event after each part of a call on each rank.
class PartTimer final : public LayerPartObserver {
 public:
  static absl::StatusOr<std::unique_ptr<PartTimer>> Create(Domain& domain) {
    auto timer = std::make_unique<PartTimer>();
    timer->ranks_.resize(Size(domain.ranks_per_node()));
    OCTET_RETURN_IF_ERROR(domain.Run([&](Rank& rank) -> absl::Status {
      OfRank& mine = timer->ranks_[Size(rank.rank())];
      OCTET_ASSIGN_OR_RETURN(mine.begin, ScopedEvent::Create());
      for (ScopedEvent& event : mine.ends) {
        OCTET_ASSIGN_OR_RETURN(event, ScopedEvent::Create());
      }
      return absl::OkStatus();
    }));
    return timer;
  }

  absl::Status Begin(Rank& rank) {
    OfRank& mine = ranks_[Size(rank.rank())];
    mine.enqueued = {};
    return mine.begin.Record(rank.stream());
  }
  absl::Status PartEnqueued(Rank& rank, LayerPart part) override {
    OfRank& mine = ranks_[Size(rank.rank())];
    mine.enqueued[static_cast<size_t>(part)] = true;
    return mine.ends[static_cast<size_t>(part)].Record(rank.stream());
  }

  // Collective. Adds each part's time on the slowest rank to its row. All ranks' work must be done.
  absl::Status AddTo(Domain& domain, std::vector<LayerRow>& rows) const {
    const absl::StatusOr<std::array<double, kParts>> mine = Slowest();
    OCTET_RETURN_IF_ERROR(domain.Together(mine.status()));
    OCTET_ASSIGN_OR_RETURN(const std::vector<double> slowest, Largest(domain, *mine));
    for (size_t part = 0; part < kParts; ++part) {
      if (slowest[part] > 0) rows[part].us.push_back(slowest[part]);
    }
    return absl::OkStatus();
  }

 private:
  // Returns each part's time on the slowest rank of this node.
  absl::StatusOr<std::array<double, kParts>> Slowest() const {
    std::array<double, kParts> slowest = {};
    for (const OfRank& mine : ranks_) {
      const ScopedEvent* before = &mine.begin;
      for (size_t part = 0; part < kParts; ++part) {
        if (!mine.enqueued[part]) continue;
        OCTET_ASSIGN_OR_RETURN(const double us, mine.ends[part].MicrosecondsSince(*before));
        slowest[part] = std::max(slowest[part], us);
        before = &mine.ends[part];
      }
    }
    return slowest;
  }

  struct OfRank {
    ScopedEvent begin;
    std::array<ScopedEvent, kParts> ends;
    std::array<bool, kParts> enqueued = {};
  };
  std::vector<OfRank> ranks_;
};

void SetRates(const LayerWork& work, LayerRow& row) {
  constexpr double kPerTera = 1e6;  // in a microsecond
  const double us = Summarize(row.us).median;
  if (us > 0 && work.flops > 0) row.tflops = work.flops / us / kPerTera;
  if (us > 0 && work.expert_bytes > 0) row.weights_tbps = work.expert_bytes / us / kPerTera;
}

void AddRates(LayerReport& report) {
  const double tokens = static_cast<double>(report.tokens) / report.num_ranks;
  const auto work_of = [&](LayerPart part) {
    return PartWork(report.config, tokens, report.work.chosen_experts, part);
  };
  for (size_t i = 0; i < report.rows.size(); ++i) {
    SetRates(i < kParts ? work_of(static_cast<LayerPart>(i)) : report.work, report.rows[i]);
  }
  LayerWork without_router = report.work;
  without_router.flops -= work_of(LayerPart::kRouter).flops;
  for (MeasuredContender& contender : report.contenders) {
    SetRates(without_router, contender.row);
  }
}

// Times the parts, the whole, its graph and contenders.
class LayerTimer {
 public:
  LayerTimer(Domain& domain, DomainBarrier barrier, MoeLayer& layer, LayerCalls& calls,
             LayerContenders& contenders)
      : domain_(domain),
        barrier_(std::move(barrier)),
        layer_(layer),
        calls_(calls),
        contenders_(contenders) {}

  // Fills report.rows, and the rows of report.contenders.
  absl::Status Run(const LayerRunOptions& options, const Progress& progress, LayerReport& report);

 private:
  // What a series consists of: one call of each kind, whose times go into `rows`.
  using TimedCall = absl::FunctionRef<absl::Status(std::vector<LayerRow>& rows)>;

  absl::Status Series(int warmup, int iters, std::vector<LayerRow>& rows, TimedCall call) const;
  absl::Status Parts(std::vector<LayerRow>& rows);
  absl::Status Contenders(int warmup, int iters, DeviceTimer& timer, LayerReport& report);
  template <typename Enqueue>
  absl::Status Time(DeviceTimer& timer, LayerRow& row, Enqueue enqueue) {
    OCTET_ASSIGN_OR_RETURN(
        const double us,
        timer.TimeFromHost([this](Rank& rank) { return calls_.Flush(rank); }, enqueue));
    row.us.push_back(us);
    return absl::OkStatus();
  }

  Domain& domain_;
  DomainBarrier barrier_;
  MoeLayer& layer_;
  LayerCalls& calls_;
  LayerContenders& contenders_;
};

absl::Status LayerTimer::Series(int warmup, int iters, std::vector<LayerRow>& rows,
                                TimedCall call) const {
  if (!domain_.node().topology().emulated()) absl::SleepFor(kIdle);
  std::vector<LayerRow> unused = rows;
  for (int i = 0; i < warmup; ++i) OCTET_RETURN_IF_ERROR(call(unused));
  for (int i = 0; i < iters; ++i) OCTET_RETURN_IF_ERROR(call(rows));
  return absl::OkStatus();
}

absl::Status LayerTimer::Parts(std::vector<LayerRow>& rows) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<PartTimer> timer, PartTimer::Create(domain_));
  LayerInternals::Observe(layer_, timer.get());
  // The flush takes longer than enqueueing a call, so that no part waits for the host, but with a
  // capacity: the call itself waits for the ranks' counts.
  const absl::Status status = domain_.Run([&](Rank& rank) -> absl::Status {
    return rank.CoordinatedLaunch([&]() -> absl::Status {
      OCTET_RETURN_IF_ERROR(calls_.Flush(rank));
      OCTET_RETURN_IF_ERROR(barrier_.Enqueue(rank));
      OCTET_RETURN_IF_ERROR(timer->Begin(rank));
      return calls_.Call(rank);
    });
  });
  LayerInternals::Observe(layer_, nullptr);
  OCTET_RETURN_IF_ERROR(status);
  return timer->AddTo(domain_, rows);
}

absl::Status LayerTimer::Run(const LayerRunOptions& options, const Progress& progress,
                             LayerReport& report) {
  std::vector<LayerRow>& rows = report.rows;
  const bool in_parts = layer_.config().path != LayerPath::kDecode;
  if (in_parts) {
    for (const absl::string_view name : kPartNames) rows.push_back({.what = std::string(name)});
  }
  const size_t layer = rows.size();
  rows.push_back({.what = "layer"});
  if (options.graph) {
    rows.push_back({.what = "graph"});
    OCTET_RETURN_IF_ERROR(domain_.Run([this](Rank& rank) { return calls_.Capture(rank); }));
  }
  OCTET_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::Create(domain_));
  const auto parts = [this](std::vector<LayerRow>& into) { return Parts(into); };
  const auto whole = [&](std::vector<LayerRow>& into) {
    return Time(timer, into[layer], [this](Rank& rank) { return calls_.Call(rank); });
  };
  const auto replay = [&](std::vector<LayerRow>& into) {
    return Time(timer, into[layer + 1], [this](Rank& rank) { return calls_.Launch(rank); });
  };
  for (int done = 0; done < options.iters; done += kSeries) {
    progress.Show("call", done + 1, options.iters);
    const int iters = std::min(kSeries, options.iters - done);
    if (in_parts) OCTET_RETURN_IF_ERROR(Series(options.warmup, iters, rows, parts));
    OCTET_RETURN_IF_ERROR(Series(options.warmup, iters, rows, whole));
    if (options.graph) OCTET_RETURN_IF_ERROR(Series(options.warmup, iters, rows, replay));
    OCTET_RETURN_IF_ERROR(Contenders(options.warmup, iters, timer, report));
  }
  return absl::OkStatus();
}

absl::Status LayerTimer::Contenders(int warmup, int iters, DeviceTimer& timer,
                                    LayerReport& report) {
  for (size_t c = 0; c < contenders_.size(); ++c) {
    std::vector<LayerRow> rows = {std::move(report.contenders[c].row)};
    OCTET_RETURN_IF_ERROR(Series(warmup, iters, rows, [&](std::vector<LayerRow>& into) {
      return Time(timer, into[0], [this, c](Rank& rank) { return contenders_.Call(c, rank); });
    }));
    report.contenders[c].row = std::move(rows[0]);
  }
  return absl::OkStatus();
}

absl::Status InitContenders(const Node& node, const LayerRunOptions& options,
                            const MoeLayerWeights& weights, LayerContenders& contenders,
                            LayerReport& report) {
  const std::string& platform = options.contender_platform;
  OCTET_RETURN_IF_ERROR(contenders.Init(
      options.contenders, platform.empty() ? node.topology().platform : platform, weights));
  report.left_out = contenders.left_out();
  for (size_t i = 0; i < contenders.size(); ++i) {
    report.contenders.push_back({.row = {.what = contenders.name(i)}, .check = {}});
  }
  return absl::OkStatus();
}

// Checks what the last calls have computed. Libraries write the first products in the dtype.
absl::Status CheckContenders(const LayerContenders& contenders, const MoeLayerWeights& weights,
                             LayerReport& report) {
  for (size_t i = 0; i < contenders.size(); ++i) {
    LayerOutput output = report.output;
    OCTET_ASSIGN_OR_RETURN(output.y, contenders.Read(i));
    report.contenders[i].check = VerifyLayer(report.config, weights, output, {.gate_up = true});
  }
  return absl::OkStatus();
}

// Collective. Makes `values` those of all ranks in order. Sends pieces, since a node that sends a
// long message gives no other sign of life.
template <typename T>
absl::Status Gather(Domain& domain, std::vector<T>& values) {
  const absl::string_view mine = BytesOf(absl::MakeConstSpan(values));
  OCTET_ASSIGN_OR_RETURN(const std::vector<double> longest,
                         Largest(domain, {static_cast<double>(mine.size())}));
  std::vector<std::string> bytes(Size(domain.num_nodes()));
  for (size_t from = 0; static_cast<double>(from) < longest.front(); from += kPiece) {
    OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> pieces,
                           domain.AllGather(mine.substr(std::min(from, mine.size()), kPiece)));
    for (size_t n = 0; n < bytes.size(); ++n) bytes[n] += pieces[n];
  }
  values.clear();
  for (const std::string& theirs : bytes) {
    if (!AppendBytes(theirs, values)) {
      return absl::InternalError("a node has given a part of a value");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerOutput> ReadTogether(Domain& domain, LayerCalls& calls) {
  absl::StatusOr<LayerOutput> output = calls.Read();
  OCTET_RETURN_IF_ERROR(domain.Together(output.status()));
  return output;
}

// Collective. Returns the sum of what all nodes have checked.
absl::StatusOr<LayerCheck> AddChecks(Domain& domain, const LayerCheck& mine) {
  if (!domain.several_nodes()) return mine;
  std::vector<int64_t> counts = {mine.routed, mine.wrong_routed, mine.checked, mine.wrong};
  const size_t each = counts.size();
  OCTET_RETURN_IF_ERROR(Gather(domain, counts));
  OCTET_ASSIGN_OR_RETURN(const std::vector<double> worst, Largest(domain, {mine.worst}));
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> wrong, domain.AllGather(mine.first_wrong));
  LayerCheck sum;
  for (size_t n = 0; n < wrong.size(); ++n) {
    sum.routed += counts[n * each];
    sum.wrong_routed += counts[n * each + 1];
    sum.checked += counts[n * each + 2];
    sum.wrong += counts[n * each + 3];
    if (sum.first_wrong.empty() && !wrong[n].empty()) {
      sum.first_wrong = absl::StrCat("node ", n, ": ", wrong[n]);
    }
  }
  sum.worst = worst.front();
  return sum;
}

}  // namespace

absl::Status GatherOutput(Domain& domain, LayerReport& report) {
  if (!domain.several_nodes()) return absl::OkStatus();
  LayerOutput& output = report.output;
  const size_t bytes =
      std::max(output.y.size() * sizeof(uint16_t), output.logits.size() * sizeof(float));
  const bool fits = bytes <= kMostGathered;
  OCTET_RETURN_IF_ERROR(domain.Together(
      fits ? absl::OkStatus()
           : absl::ResourceExhaustedError(absl::StrCat(
                 "an array of this node's tokens has ", bytes, " bytes; at most ", kMostGathered,
                 " can be gathered for a file, so give fewer tokens"))));
  OCTET_RETURN_IF_ERROR(Gather(domain, output.x));
  OCTET_RETURN_IF_ERROR(Gather(domain, output.y));
  OCTET_RETURN_IF_ERROR(Gather(domain, output.logits));
  OCTET_RETURN_IF_ERROR(Gather(domain, output.topk_idx));
  return Gather(domain, output.topk_weights);
}

absl::Status LayerReport::Checked() const {
  if (check.has_value() && !check->ok()) return absl::DataLossError(check->first_wrong);
  if (moved.has_value() && moved->check.has_value() && !moved->check->ok()) {
    return absl::DataLossError(
        absl::StrCat("after experts have moved: ", moved->check->first_wrong));
  }
  for (const MeasuredContender& contender : contenders) {
    if (!contender.check.has_value() || contender.check->ok()) continue;
    return absl::DataLossError(
        absl::StrCat(contender.row.what, ": ", contender.check->first_wrong));
  }
  return absl::OkStatus();
}

void SetCapacity(double capacity, MoeLayerConfig& config) {
  if (capacity == 0) return;
  const double rows = std::ceil(capacity * static_cast<double>(EvenRows(config)));
  // More than can come is as much as can come.
  config.capacity_rows =
      static_cast<int>(std::min(rows, static_cast<double>(std::numeric_limits<int32_t>::max())));
}

absl::StatusOr<LayerReport> RunLayer(Domain& domain, const LayerRunOptions& options,
                                     const MoeLayerWeights& weights, const LayerTokens& tokens,
                                     const Progress& progress) {
  Node& node = domain.node();
  MoeLayerConfig config = options.config;
  config.max_tokens_per_rank = std::max(tokens.most(), 1);
  SetCapacity(options.capacity, config);
  LayerReport report;
  if (options.iters > 0) {
    absl::StatusOr<LayerLimits> limits = MeasureLayerLimits(node, config);
    OCTET_RETURN_IF_ERROR(domain.Together(limits.status()));
    report.limits = *limits;
  }
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<MoeLayer> layer,
                         MoeLayer::Create(domain, config, {.rails = options.rails}));
  report.config = layer->config();
  report.num_nodes = domain.num_nodes();
  report.num_ranks = domain.num_ranks();
  report.tokens = tokens.total();
  constexpr int kSteps = 3;  // those that may take long
  progress.Show("loading weights: step", 1, kSteps);
  const absl::Time begin = absl::Now();
  OCTET_RETURN_IF_ERROR(domain.Together(layer->Load(weights)));
  report.load_seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  progress.Show("calling the layer: step", 2, kSteps);
  const LayerTokens own = tokens.OfRanks(domain.GlobalRank(0), domain.ranks_per_node());
  LayerCalls calls(node, *layer, own);
  OCTET_RETURN_IF_ERROR(domain.Together(calls.Init()));
  OCTET_RETURN_IF_ERROR(domain.Run([&calls](Rank& rank) { return calls.Call(rank); }));
  OCTET_ASSIGN_OR_RETURN(report.output, ReadTogether(domain, calls));
  report.topk_idx = report.output.topk_idx;
  OCTET_RETURN_IF_ERROR(Gather(domain, report.topk_idx));
  report.work = WorkOf(report.config, tokens.counts(), report.topk_idx);
  LayerContenders contenders(node, {*layer, calls, own});
  OCTET_RETURN_IF_ERROR(InitContenders(node, options, weights, contenders, report));
  if (options.iters > 0) {
    OCTET_ASSIGN_OR_RETURN(DomainBarrier barrier, DomainBarrier::Create(domain));
    LayerTimer timer(domain, std::move(barrier), *layer, calls, contenders);
    OCTET_RETURN_IF_ERROR(timer.Run(options, progress, report));
    AddRates(report);
    // The last call's results are checked: they must be those of the first.
    OCTET_ASSIGN_OR_RETURN(const LayerOutput last, ReadTogether(domain, calls));
    const bool same = last.y == report.output.y && last.topk_idx == report.output.topk_idx;
    OCTET_RETURN_IF_ERROR(
        domain.Together(same ? absl::OkStatus()
                             : absl::DataLossError("two calls for the same tokens have given "
                                                   "different results")));
  }
  std::optional<LayerMove> move;
  if (!options.apply.empty()) {
    OCTET_ASSIGN_OR_RETURN(move, MoveExperts(node, *layer, calls, report.output,
                                             {options.apply, options.apply_blocks}));
    report.moved = {.times = move->times, .expert_bytes = ExpertBytes(report.config), .check = {}};
  }
  if (report.config.loads.count) {
    OCTET_ASSIGN_OR_RETURN(report.loads, layer->Loads());
  }
  if (!options.check) return report;
  progress.Show("checking: step", 3, kSteps);
  OCTET_ASSIGN_OR_RETURN(report.check,
                         AddChecks(domain, VerifyLayer(report.config, weights, report.output,
                                                       {.node_sums = domain.several_nodes()})));
  if (move.has_value() && report.moved.has_value()) {
    report.moved->check = VerifyLayer(report.config, weights, move->output, {});
  }
  OCTET_RETURN_IF_ERROR(CheckContenders(contenders, weights, report));
  return report;
}

}  // namespace octet
