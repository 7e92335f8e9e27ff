#include "tools/step/run_spec.h"

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/nodes/options.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"
#include "tools/step/step_executor.h"

namespace octet {
namespace {

struct ChallengeShape {
  int num_experts;
  int topk;
  int hidden;
  int max_tokens;
  uint64_t seed;
  bool benchmark;
};
constexpr std::array<ChallengeShape, 14> kChallenge = {{
    {8, 2, 6144, 4, 1236, false},
    {64, 6, 2048, 4, 1234, false},
    {64, 6, 2048, 8, 542, false},
    {128, 4, 2880, 16, 347, false},
    {128, 4, 2880, 32, 51, false},
    {128, 8, 4096, 64, 175, false},
    {128, 8, 4096, 128, 534, false},
    {256, 8, 7168, 64, 897, false},
    {256, 8, 7168, 128, 4, false},
    {8, 2, 6144, 16, 6635, true},
    {64, 6, 2048, 32, 1234, true},
    {128, 4, 2880, 128, 51, true},
    {128, 8, 4096, 256, 175, true},
    {256, 8, 7168, 256, 4, true},
}};

// Refuses what calls over several nodes do not have.
absl::Status CheckForSeveralNodes(const RunSpec& run) {
  const CombineOrder order = run.workload.config.combine_order;
  if (order != CombineOrder::kAuto && order != CombineOrder::kPerNode) {
    return absl::InvalidArgumentError(
        absl::StrCat("--combine_order=", EnumName(order),
                     ": over several nodes outputs are added per_node; --intranode_order is the "
                     "order within a node"));
  }
  const absl::string_view without = run.cached ? "cached" : !run.trace.empty() ? "trace" : "";
  if (without.empty() && CurrentSchedule().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(without.empty() ? "a schedule is" : absl::StrCat("--", without, " is"),
                   " for one node, and ", run.nodes.num_nodes, " have been started"));
}

RunSpec WithShape(const RunSpec& common, const ChallengeShape& shape) {
  RunSpec run = common;
  run.name =
      absl::StrCat(shape.num_experts, "/", shape.topk, "/", shape.hidden, "/", shape.max_tokens);
  run.benchmark = shape.benchmark;
  run.expert = ExpertKind::kRank;
  WorkloadSpec& spec = run.workload;
  spec.config.num_experts = shape.num_experts;
  spec.config.topk = shape.topk;
  spec.config.hidden = shape.hidden;
  spec.config.max_tokens_per_rank = shape.max_tokens;
  spec.config.dtype = DType::kFloat16;
  spec.seed = shape.seed;
  return run;
}

}  // namespace

int RanksPerNode(const RunSpec& run) { return run.workload.num_ranks / run.nodes.num_nodes; }

absl::StatusOr<HeapSize> HeapBytesOf(const RunSpec& run) {
  const WorkloadSpec& spec = run.workload;
  if (run.nodes.num_nodes == 1) return ExpertParallel::HeapBytes(spec.config, spec.num_ranks);
  return ExpertParallel::HeapBytes(IntranodeConfig(spec.config, run.nodes), RanksPerNode(run));
}

std::vector<RunSpec> ChallengeShapes(const RunSpec& common) {
  std::vector<RunSpec> shapes;
  for (const ChallengeShape& shape : kChallenge) shapes.push_back(WithShape(common, shape));
  return shapes;
}

RailOptions RailOptionsOf(const RunSpec& run) {
  return {.rows = run.rail_rows,
          .chunk_tokens = run.rail_chunk,
          .intranode_order = run.nodes.intranode_order};
}

absl::Status CompleteSpec(RunSpec& run) {
  WorkloadSpec& spec = run.workload;
  EpConfig& config = run.workload.config;
  if (run.nodes.num_nodes > 1) OCTET_RETURN_IF_ERROR(CheckForSeveralNodes(run));
  if (!config.placement.empty() && !run.dump.empty()) {
    return absl::InvalidArgumentError("--dump does not go with --placement");
  }
  if (!config.placement.empty() && run.expert == ExpertKind::kRank) {
    return absl::InvalidArgumentError(
        "--expert=rank does not go with --placement: an expert may be on several ranks");
  }
  // No field of EpConfig asks for cached layouts, so kAuto cannot choose a strategy that has them.
  if (run.cached) {
    constexpr auto kKeeps = &StrategyInfo::keeps_layouts;
    if (config.strategy == Strategy::kAuto) config.strategy = FirstWith(kKeeps);
    if (!Has(config.strategy, kKeeps)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--cached: only ", NamesWith(kKeeps), " keeps layouts, not ", EnumName(config.strategy)));
    }
  }
  if (config.dispatch_format == DispatchFormat::kBytes) {
    config.high_throughput.row_bytes = static_cast<int>(config.dtype_row_bytes());
    if (!run.fuse_expert || !CanFuseExpert(config)) {
      return absl::InvalidArgumentError(
          "--format=bytes: experts are applied inside combine, so it goes with neither "
          "--fuse_expert=false nor rows that are received once");
    }
  }
  OCTET_RETURN_IF_ERROR(run.nodes.num_nodes > 1
                            ? ValidateHierarchical(config, run.nodes, run.rail_chunk)
                            : Validate(config, spec.num_ranks));
  run.fuse_expert = run.fuse_expert && CanFuseExpert(config);
  OCTET_ASSIGN_OR_RETURN(const HeapSize needed, HeapBytesOf(run));
  if (run.heap_bytes > 0 && needed.total() > run.heap_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the heap is too small: ", needed.total(),
                     " bytes are needed on every GPU, --heap_mb gives ", run.heap_bytes));
  }
  return Workload::Check(spec);
}

std::vector<float> ExpertScales(ExpertKind kind, int num_experts, int num_ranks) {
  std::vector<float> scales;
  for (int e = 0; e < num_experts; ++e) {
    if (kind == ExpertKind::kId) {
      scales.push_back(1.0F + static_cast<float>(e) / static_cast<float>(num_experts));
    } else {
      const int rank = e / (num_experts / num_ranks);
      scales.push_back(1.0F + static_cast<float>(rank));
    }
  }
  return scales;
}

absl::Span<const EnumEntry<ExpertKind>> EnumTable(ExpertKind) {
  static constexpr EnumEntry<ExpertKind> kTable[] = {{ExpertKind::kId, "id"},
                                                     {ExpertKind::kRank, "rank"}};
  return kTable;
}

absl::Span<const EnumEntry<Align>> EnumTable(Align) {
  static constexpr EnumEntry<Align> kTable[] = {{Align::kHost, "host"}, {Align::kDevice, "device"}};
  return kTable;
}

}  // namespace octet
