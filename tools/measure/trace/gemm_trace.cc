#include "tools/measure/trace/gemm_trace.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/gemm/gemm_trace_tags.h"
#include "octet/grouped_gemm.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/platform/gemm_call.h"
#include "tools/measure/probe/clock_probe.h"
#include "tools/measure/probe/gpu_rates.h"
#include "tools/support/atomic_file.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr int kEventsPerTrack = 8192;
constexpr int kMultiplyTrack = static_cast<int>(device::GemmTrack::kMultiply);

// The first start and the last end of some slices.
struct Extent {
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;

  void Add(const TraceSlice& slice) {
    begin = std::min(begin, slice.start_us);
    end = std::max(end, slice.start_us + slice.duration_us);
  }
};

// What the traced and the other products have in common.
struct Products {
  const GemmOptions& options;
  GemmOperandSet operands;
  ClockProbe clock;

  absl::StatusOr<double> TimeUs(GroupedGemm& gemm) const {
    const GroupedGemmArgs args = ArgsOf(options, operands);
    OCTET_ASSIGN_OR_RETURN(const TimedProduct timed,
                           TimeProduct(operands.flush, clock, [&gemm, &args](GpuStream stream) {
                             return gemm.Run(args, stream);
                           }));
    return timed.us;
  }
};

absl::StatusOr<Products> MakeProducts(const Node& node, const GemmOptions& options) {
  OCTET_ASSIGN_OR_RETURN(GemmOperandSet operands,
                         MakeOperands(options, node.topology().emulated()));
  OCTET_ASSIGN_OR_RETURN(const GpuRates rates, CurrentGpuRates(node.topology().platform));
  OCTET_ASSIGN_OR_RETURN(ClockProbe clock, ClockProbe::Create(rates));
  return Products{options, std::move(operands), std::move(clock)};
}

}  // namespace

double GemmTraceSummary::TotalUs(absl::string_view track, absl::string_view work) const {
  for (const GemmWorkSummary& line : works) {
    if (line.track == track && line.work == work) return line.total_us;
  }
  return 0;
}

GemmTraceSummary SummarizeGemmTrace(absl::Span<const TraceSlice> slices, int blocks) {
  std::map<std::pair<int, uint32_t>, std::vector<double>> durations;  // by track and tag
  std::map<int, Extent> of_blocks;
  Extent all;
  for (const TraceSlice& slice : slices) {
    durations[{slice.track, slice.tag}].push_back(slice.duration_us);
    all.Add(slice);
    if (slice.track == kMultiplyTrack) of_blocks[slice.block].Add(slice);
  }
  GemmTraceSummary summary;
  summary.blocks = blocks;
  if (slices.empty()) return summary;
  summary.span_us = all.end - all.begin;
  const double blocks_us = summary.span_us * blocks;
  for (auto& [key, us] : durations) {
    GemmWorkSummary& line = summary.works.emplace_back();
    line.track = GemmTrackNames()[static_cast<size_t>(key.first)];
    line.work = GemmTraceTags()[key.second].name;
    line.slices = static_cast<int64_t>(us.size());
    const Statistics statistics = Summarize(std::move(us));
    line.total_us = statistics.mean * static_cast<double>(line.slices);
    line.share = line.total_us / blocks_us;
    line.median_us = statistics.median;
    line.p99_us = statistics.p99;
  }
  double before_us = 0;
  double behind_us = summary.span_us * (blocks - static_cast<int>(of_blocks.size()));
  if (behind_us > 0) summary.longest_behind_us = summary.span_us;
  for (const auto& [block, extent] : of_blocks) {
    before_us += extent.begin - all.begin;
    behind_us += all.end - extent.end;
    summary.longest_behind_us = std::max(summary.longest_behind_us, all.end - extent.end);
  }
  summary.before = before_us / blocks_us;
  summary.behind = behind_us / blocks_us;
  return summary;
}

std::string GemmTraceText(const GemmTraceSummary& summary, double flops) {
  constexpr double kPercent = 100;
  constexpr double kTera = 1e-6;  // of 1 / µs
  const TextTable table({{"track", "", 10},
                         {"work", "", 10},
                         {"slices", "", 10},
                         {"share", "%", 10},
                         {"median", "us", 10},
                         {"p99", "us", 10}});
  std::string text = table.Head();
  for (const GemmWorkSummary& line : summary.works) {
    text +=
        table.Row({std::string(line.track), std::string(line.work), absl::StrCat(line.slices),
                   absl::StrFormat("%.1f", line.share * kPercent),
                   absl::StrFormat("%.2f", line.median_us), absl::StrFormat("%.2f", line.p99_us)});
  }
  text += "#\n";
  text += Comment(absl::StrFormat(
      "%.1f us from the first block's start to the last block's end. Shares are of that time of %d "
      "blocks: %.1f%% lies before a block's first tile, and %.1f%% behind its last, where the "
      "longest idles for %.1f us.",
      summary.span_us, summary.blocks, summary.before * kPercent, summary.behind * kPercent,
      summary.longest_behind_us));
  const double multiply_us = summary.TotalUs("multiply", "multiply");
  if (multiply_us > 0) {
    text += Comment(absl::StrFormat(
        "%.4g TFLOP/s while all blocks multiply, %.4g from start to end",
        flops / (multiply_us / summary.blocks) * kTera, flops / summary.span_us * kTera));
  }
  return text;
}

absl::StatusOr<GemmTraceResult> TraceGemm(Node& node, const GemmOptions& options,
                                          const std::string& path) {
  OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(node.topology().gpus[0].device));
  OCTET_ASSIGN_OR_RETURN(const Products products, MakeProducts(node, options));
  GroupedGemmConfig config = options.Config();
  config.tiles = options.tiles[0];
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> plain, GroupedGemm::Create(config));
  config.tiles = plain->tiles();
  OCTET_ASSIGN_OR_RETURN(
      const std::unique_ptr<TraceCollector> collector,
      TraceCollector::Create(node, plain->blocks(), kEventsPerTrack, GroupedGemm::kTraceTracks));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> traced,
                         GroupedGemm::Create(config, {.trace = collector.get()}));
  std::vector<double> plain_us;
  std::vector<double> traced_us;
  for (int i = 0; i < options.warmup + options.iters; ++i) {
    OCTET_ASSIGN_OR_RETURN(const double without, products.TimeUs(*plain));
    OCTET_RETURN_IF_ERROR(collector->Clear());
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemset(products.operands.out.as<void>(), 0xff, products.operands.out.bytes()));
    OCTET_ASSIGN_OR_RETURN(const double with, products.TimeUs(*traced));
    if (i < options.warmup) continue;
    plain_us.push_back(without);
    traced_us.push_back(with);
  }
  OCTET_ASSIGN_OR_RETURN(const std::vector<TraceSlice> slices, collector->Collect());
  GemmTraceResult result;
  result.tiles = plain->tiles();
  result.plain_us = Summarize(std::move(plain_us));
  result.traced_us = Summarize(std::move(traced_us));
  result.summary = SummarizeGemmTrace(slices, plain->blocks());
  result.events_dropped = collector->num_dropped();
  OCTET_ASSIGN_OR_RETURN(result.check, CheckOperands(options, products.operands));
  const std::string gpu_names[] = {node.topology().gpus[0].name};
  const std::string json =
      TraceJson(slices, GemmTraceTags(), {.gpus = gpu_names, .tracks = GemmTrackNames()});
  OCTET_RETURN_IF_ERROR(WriteFileAtomically(path, {json}));
  return result;
}

}  // namespace octet
