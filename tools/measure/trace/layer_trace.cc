#include "tools/measure/trace/layer_trace.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/decode/decode_trace.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/step/device_timer.h"
#include "tools/step/layer_calls.h"
#include "tools/support/atomic_file.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr int kPhasesPerTrack = 16;  // a block records each phase once

// A layer with its weights and the memory of its calls.
struct Subject {
  std::unique_ptr<MoeLayer> layer;
  std::unique_ptr<LayerCalls> calls;
};

absl::StatusOr<Subject> MakeSubject(Node& node, const MoeLayerConfig& config,
                                    const MoeLayerWeights& weights, const LayerTokens& tokens,
                                    TraceCollector* trace) {
  Subject subject;
  OCTET_ASSIGN_OR_RETURN(subject.layer, MoeLayer::Create(node, config, {.trace = trace}));
  OCTET_RETURN_IF_ERROR(subject.layer->Load(weights));
  subject.calls = std::make_unique<LayerCalls>(node, *subject.layer, tokens);
  OCTET_RETURN_IF_ERROR(subject.calls->Init());
  return subject;
}

absl::StatusOr<double> TimeCall(Node& node, DeviceTimer& timer, LayerCalls& calls) {
  OCTET_RETURN_IF_ERROR(node.Run([&calls](Rank& rank) { return calls.Flush(rank); }));
  return timer.Time([&calls](Rank& rank) { return calls.Call(rank); });
}

// The values of each phase in all calls.
class PhaseSeries {
 public:
  void Add(absl::Span<const LayerPhase> phases) {
    for (size_t i = 0; i < phases.size(); ++i) {
      if (i == series_.size()) series_.push_back({phases[i].name, {}, {}, {}});
      series_[i].median.push_back(phases[i].median_us);
      series_[i].longest.push_back(phases[i].longest_us);
      series_[i].end.push_back(phases[i].end_us);
    }
  }
  std::vector<LayerPhase> Medians() const {
    std::vector<LayerPhase> phases;
    for (const Series& one : series_) {
      phases.push_back({one.name, Summarize(one.median).median, Summarize(one.longest).median,
                        Summarize(one.end).median});
    }
    return phases;
  }

 private:
  struct Series {
    absl::string_view name;
    std::vector<double> median, longest, end;
  };
  std::vector<Series> series_;
};

}  // namespace

std::vector<LayerPhase> LayerPhases(absl::Span<const TraceSlice> slices) {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  int last_rank = 0;
  for (const TraceSlice& slice : slices) {
    begin = std::min(begin, slice.start_us);
    const double slice_end = slice.start_us + slice.duration_us;
    if (slice_end > end) last_rank = slice.rank;
    end = std::max(end, slice_end);
  }
  struct Blocks {
    std::vector<double> us;
    double end = 0;
  };
  std::map<uint32_t, Blocks> by_tag;
  for (const TraceSlice& slice : slices) {
    if (slice.rank != last_rank) continue;
    Blocks& blocks = by_tag[slice.tag];
    blocks.us.push_back(slice.duration_us);
    blocks.end = std::max(blocks.end, slice.start_us + slice.duration_us - begin);
  }
  std::vector<LayerPhase> phases;
  for (auto& [tag, blocks] : by_tag) {
    const double longest = *std::max_element(blocks.us.begin(), blocks.us.end());
    phases.push_back(
        {DecodeTraceTags()[tag].name, Summarize(std::move(blocks.us)).median, longest, blocks.end});
  }
  return phases;
}

absl::StatusOr<LayerTraceResult> TraceLayer(Node& node, const LayerRunOptions& options,
                                            const MoeLayerWeights& weights,
                                            const LayerTokens& tokens, const std::string& path) {
  MoeLayerConfig config = options.config;
  config.path = LayerPath::kDecode;
  OCTET_ASSIGN_OR_RETURN(
      const std::unique_ptr<TraceCollector> collector,
      TraceCollector::Create(node, node.topology().gpus[0].num_compute_units, kPhasesPerTrack));
  OCTET_ASSIGN_OR_RETURN(const Subject plain, MakeSubject(node, config, weights, tokens, nullptr));
  OCTET_ASSIGN_OR_RETURN(const Subject traced,
                         MakeSubject(node, config, weights, tokens, collector.get()));
  OCTET_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::Create(node));
  LayerTraceResult result;
  result.config = plain.layer->config();
  std::vector<double> plain_us;
  std::vector<double> traced_us;
  std::vector<TraceSlice> slices;
  PhaseSeries series;
  for (int i = 0; i < options.warmup + options.iters; ++i) {
    OCTET_ASSIGN_OR_RETURN(const double without, TimeCall(node, timer, *plain.calls));
    OCTET_RETURN_IF_ERROR(collector->Clear());
    OCTET_ASSIGN_OR_RETURN(const double with, TimeCall(node, timer, *traced.calls));
    if (i < options.warmup) continue;
    plain_us.push_back(without);
    traced_us.push_back(with);
    OCTET_ASSIGN_OR_RETURN(slices, collector->Collect());
    series.Add(LayerPhases(slices));
  }
  result.calls = options.iters;
  result.plain_us = Summarize(std::move(plain_us));
  result.traced_us = Summarize(std::move(traced_us));
  result.phases = series.Medians();
  result.events_dropped = collector->num_dropped();
  OCTET_ASSIGN_OR_RETURN(const LayerOutput output, traced.calls->Read());
  result.check = VerifyLayer(result.config, weights, output);
  std::vector<std::string> names;
  for (const GpuInfo& gpu : node.topology().gpus) names.push_back(gpu.name);
  OCTET_RETURN_IF_ERROR(
      WriteFileAtomically(path, {TraceJson(slices, DecodeTraceTags(), {.gpus = names})}));
  return result;
}

std::string LayerTraceText(const LayerTraceResult& result) {
  const TextTable table(
      {{"phase", "", 16}, {"median", "us", 10}, {"longest", "us", 10}, {"end", "us", 10}});
  std::string text = table.Head();
  for (const LayerPhase& phase : result.phases) {
    text += table.Row({std::string(phase.name), absl::StrFormat("%.2f", phase.median_us),
                       absl::StrFormat("%.2f", phase.longest_us),
                       absl::StrFormat("%.2f", phase.end_us)});
  }
  text += Comment(
      "of the blocks of the rank that ended last; end: of the last block, from the first block's "
      "start (medians over the calls)");
  text +=
      Comment(absl::StrFormat("a call takes %.1f us traced and %.1f us without (medians of %d "
                              "each, in turns, by events around it)",
                              result.traced_us.median, result.plain_us.median, result.calls));
  return text;
}

}  // namespace octet
