#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/commands.h"
#include "tools/commands/run_flags.h"
#include "tools/support/atomic_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/text_table.h"
#include "tools/workload/expert_loads.h"
#include "tools/workload/placement_file.h"
#include "tools/workload/placement_simulation.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "balance";

struct BalanceFlags {
  RunSpec run;
  int ranks = 8;
  int slots = 0;
  std::string loads;
  std::string output;
  bool simulate = false;
  SimulationSpec simulation = {};
};

// Flags that mean something to --simulate only.
constexpr auto kSimulationFlags = std::to_array<absl::string_view>(
    {"steps", "replan", "drift", "hidden", "intermediate", "call_us", "link_gbps", "rows_tbps",
     "tflops", "weights_tbps"});

void AddSimulationFlags(CommandLine& line, BalanceFlags& flags) {
  constexpr int kMostSteps = 100'000;
  SimulationSpec& simulation = flags.simulation;
  SimulatedParts& parts = simulation.parts;
  line.Add("simulate", flags.simulate,
           "also print what placements do to the time of a layer's step, computed from the times\n"
           "that the flags below state");
  line.Add("steps", InRange(simulation.steps, 1, kMostSteps),
           "steps of the simulation; a recorded routing is cut into as many");
  line.Add("replan", InRange(simulation.replan, 1, kMostSteps),
           "steps from one plan to the next, which is for the loads of those between");
  line.Add("drift", InRange(simulation.drift, 0, kMostSteps),
           "steps after which other experts are the popular ones; 0: never");
  line.Add("hidden", InRange(parts.hidden, 1, kMaxHidden), "H: elements of a token's row");
  line.Add("intermediate", InRange(parts.intermediate, 1, kMaxHidden),
           "I: columns of an expert's intermediate rows");
  line.Add("call_us", parts.call_us, "measured: dispatch and combine of one token of each rank");
  line.Add("link_gbps", parts.link_gbps, "measured: GB/s of all-to-all stores of a GPU");
  line.Add("rows_tbps", parts.rows_tbps,
           "measured: TB/s of rows that dispatch puts in their places, own ones included");
  line.Add("tflops", parts.tflops, "measured: TFLOP/s of the products of many rows");
  line.Add("weights_tbps", parts.weights_tbps,
           "measured: TB/s of reading weights, which bounds products of few rows");
}

void AddBalanceFlags(CommandLine& line, BalanceFlags& flags) {
  flags.run.workload.config.max_tokens_per_rank = kMaxTokensPerRank;
  flags.run.workload.config.hidden = 8;  // choices do not depend on the rows
  flags.run.workload.tokens = {1024};
  line.Add("ranks", InRange(flags.ranks, 1, kMaxPlacementRanks),
           "R: ranks that share the experts, over all nodes");
  AddFlags(line, flags.run, {"experts"});
  line.Add("slots", flags.slots,
           "S: experts that a rank has room for; 0: a quarter more than E / R, rounded up");
  line.Add("loads", flags.loads,
           "file with the rows of each expert, .npy of int32, int64, float32 or float64: [E], or\n"
           "[N, E], which is added up; in place of --routing");
  AddFlags(line, flags.run, {"routing", "topk", "tokens", "drop", "seed", "placement"});
  line.Add("output", flags.output,
           "file for the placement: .npy, else JSON (docs/formats.md); empty: none");
  AddSimulationFlags(line, flags);
  line.HaveOneDefault();
}

// The loads of experts, and a sentence that says whose they are.
struct Loads {
  std::vector<double> of_experts;
  std::string text;
};

absl::StatusOr<Loads> ResolveLoads(const CommandLine& line, BalanceFlags& flags) {
  WorkloadSpec& spec = flags.run.workload;
  spec.num_ranks = flags.ranks;
  if (!flags.loads.empty()) {
    OCTET_RETURN_IF_ERROR(line.Refuse({"routing", "topk", "tokens", "drop", "seed"},
                                      "does not go with --loads, which says what experts receive"));
    OCTET_RETURN_IF_ERROR(CheckRange("experts", spec.config.num_experts, 1, kMaxExperts));
    OCTET_ASSIGN_OR_RETURN(std::vector<double> loads,
                           ReadLoads(flags.loads, spec.config.num_experts));
    return Loads{std::move(loads), flags.loads};
  }
  if (!line.Given("routing")) {
    return absl::InvalidArgumentError(
        "--loads=FILE.npy or --routing is needed, which says what experts receive");
  }
  // A recorded routing has its own numbers of tokens.
  if (spec.routing.kind == RoutingKind::kFile && !line.Given("tokens")) spec.tokens.clear();
  OCTET_RETURN_IF_ERROR(ResolveChoices(line, spec));
  OCTET_RETURN_IF_ERROR(
      CheckRange("topk", spec.config.topk, 1, std::min(kMaxTopk, spec.config.num_experts)));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload, Workload::Create(spec));
  workload->Generate(0);
  return Loads{LoadsOf(workload->inputs(), spec.config.num_experts),
               absl::StrCat(spec.routing.text, ", top ", spec.config.topk)};
}

int SlotsOf(const BalanceFlags& flags) {
  if (flags.slots != 0) return flags.slots;
  constexpr int kMore = 4;  // a quarter
  const int experts = flags.run.workload.config.num_experts;
  return (experts * (kMore + 1) + kMore * flags.ranks - 1) / (kMore * flags.ranks);
}

double Most(const std::vector<double>& loads) {
  return *std::max_element(loads.begin(), loads.end());
}

int ExpertsOn(const Placement& placement, int rank) {
  const auto slots = static_cast<size_t>(placement.slots_per_rank());
  const auto of_rank = placement.slots().subspan(static_cast<size_t>(rank) * slots, slots);
  return static_cast<int>(slots) -
         static_cast<int>(std::count(of_rank.begin(), of_rank.end(), Placement::kFreeSlot));
}

std::string Table(const BalanceFlags& flags, const Loads& loads, const Placement& before,
                  const Placement& after) {
  const std::vector<double> rows_before = before.LoadsOfRanks(loads.of_experts);
  const std::vector<double> rows_after = after.LoadsOfRanks(loads.of_experts);
  const double mean =
      std::accumulate(loads.of_experts.begin(), loads.of_experts.end(), 0.0) / flags.ranks;
  const auto of_mean = [mean](double rows) {
    return mean > 0 ? absl::StrFormat("%.3f", rows / mean) : "-";
  };
  std::string text = Comment(absl::StrCat("octet balance: ", after.num_experts(), " experts on ",
                                          flags.ranks, " ranks with ", after.slots_per_rank(),
                                          " slots; loads of ", loads.text));
  const TextTable table({{"rank", "", 6},
                         {"before", "experts", 9},
                         {"before", "rows", 12},
                         {"before", "of mean", 9},
                         {"after", "experts", 9},
                         {"after", "rows", 12},
                         {"after", "of mean", 9}});
  text += table.Head();
  for (int rank = 0; rank < flags.ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    text += table.Row({absl::StrCat(rank), absl::StrCat(ExpertsOn(before, rank)),
                       absl::StrFormat("%.0f", rows_before[r]), of_mean(rows_before[r]),
                       absl::StrCat(ExpertsOn(after, rank)), absl::StrFormat("%.0f", rows_after[r]),
                       of_mean(rows_after[r])});
  }
  int replicated = 0;
  for (int e = 0; e < after.num_experts(); ++e) replicated += after.ReplicasOf(e).size() > 1;
  text += Comment(absl::StrCat("max / mean: ", of_mean(Most(rows_before)), " before, ",
                               of_mean(Most(rows_after)), " after; ", replicated,
                               " experts have several replicas"));
  return text;
}

absl::Status CheckSimulation(const CommandLine& line, const BalanceFlags& flags) {
  if (!flags.simulate) return line.Refuse(kSimulationFlags, "goes with --simulate only");
  OCTET_RETURN_IF_ERROR(
      line.Refuse({"loads"}, "does not go with --simulate, which needs a --routing"));
  const SimulatedParts& parts = flags.simulation.parts;
  for (const auto& [name, value] :
       {std::pair("call_us", parts.call_us), std::pair("link_gbps", parts.link_gbps),
        std::pair("rows_tbps", parts.rows_tbps), std::pair("tflops", parts.tflops),
        std::pair("weights_tbps", parts.weights_tbps)}) {
    if (std::isfinite(value) && value > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, "=", value, " is not a positive number"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SimulationTable(BalanceFlags& flags) {
  SimulationSpec& spec = flags.simulation;
  spec.workload = flags.run.workload;
  spec.slots = SlotsOf(flags);
  OCTET_ASSIGN_OR_RETURN(const std::vector<SimulatedRun> runs, Simulate(spec));
  const SimulatedParts& parts = spec.parts;
  std::string text = Comment(absl::StrFormat(
      "simulated: %d steps%s, us of dispatch, products and combine. Computed, not measured, of "
      "--call_us=%g --link_gbps=%g --rows_tbps=%g --tflops=%g --weights_tbps=%g, H %d, I %d in "
      "BF16",
      spec.steps,
      spec.drift > 0 ? absl::StrFormat(", other popular experts after each %d", spec.drift) : "",
      parts.call_us, parts.link_gbps, parts.rows_tbps, parts.tflops, parts.weights_tbps,
      parts.hidden, parts.intermediate));
  const TextTable table({{"placement", "", 20},
                         {"step", "us", 10},
                         {"slowest", "us", 10},
                         {"links", "us", 10},
                         {"products", "us", 10},
                         {"max/mean", "rows", 10},
                         {"moved", "experts", 9}});
  text += table.Head();
  for (const SimulatedRun& run : runs) {
    std::string name = run.name;
    absl::StrReplaceAll({{" ", "_"}}, &name);
    text += table.Row(
        {name, absl::StrFormat("%.1f", run.mean.us), absl::StrFormat("%.1f", run.most_us),
         absl::StrFormat("%.1f", run.mean.link_us), absl::StrFormat("%.1f", run.mean.product_us),
         absl::StrFormat("%.3f", run.mean.imbalance), absl::StrFormat("%.1f", run.moved)});
  }
  return text + Comment(
                    "moved: experts copied to another rank in a step, on average; their time "
                    "is not in it");
}

absl::Status Balance(const CommandLine& line, BalanceFlags& flags) {
  OCTET_RETURN_IF_ERROR(CheckSimulation(line, flags));
  OCTET_ASSIGN_OR_RETURN(const Loads loads, ResolveLoads(line, flags));
  const int experts = flags.run.workload.config.num_experts;
  OCTET_ASSIGN_OR_RETURN(const Placement before,
                         flags.run.placement.empty()
                             ? Placement::InOrder(experts, flags.ranks)
                             : ReadPlacement(flags.run.placement, experts, flags.ranks));
  absl::StatusOr<Placement> after = PlanPlacement(loads.of_experts, flags.ranks, SlotsOf(flags));
  if (!after.ok()) {
    return flags.loads.empty() ? after.status()
                               : absl::InvalidArgumentError(
                                     absl::StrCat(flags.loads, ": ", after.status().message()));
  }
  if (!flags.output.empty()) OCTET_RETURN_IF_ERROR(WritePlacement(flags.output, *after));
  absl::PrintF("%s", Table(flags, loads, before, *after));
  if (!flags.simulate) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(const std::string simulated, SimulationTable(flags));
  absl::PrintF("#\n%s", simulated);
  return absl::OkStatus();
}

int Run(CommandLine& line, BalanceFlags& flags) {
  const absl::Status status = Balance(line, flags);
  if (status.ok()) return kExitOk;
  PrintError(kName, status);
  return kExitUsage;
}

}  // namespace

Command BalanceCommand() {
  const Command command = {
      .name = kName,
      .summary = "which expert to put where, with replicas, so that ranks have equal loads",
      .details =
          "Plans a placement of experts for loads that were measured or for a routing, prints the\n"
          "rows of each rank before and after it, and writes it for --placement of other\n"
          "commands and for EpConfig::placement. It needs no GPU. Without --placement, experts\n"
          "are in order before: as many on each rank.\n"
          "Exit codes: 0 ok, 2 usage.",
  };
  return WithFlags<BalanceFlags>(command, AddBalanceFlags, Run);
}

}  // namespace octet
