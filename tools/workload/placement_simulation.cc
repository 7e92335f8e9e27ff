#include "tools/workload/placement_simulation.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr double kBytesPerElement = 2;
constexpr double kMatrices = 3;  // gate, up and down

// The work of a step with a placement.
struct Counts {
  std::vector<double> rows;      // of each slot of all ranks
  std::vector<double> sent;      // rows that each rank sends to others, each token once per rank
  std::vector<double> received;  // and those that it receives
};

Counts CountOf(const Placement& placement, int topk, const StepChoices& choices) {
  const auto num_ranks = Size(placement.num_ranks());
  Counts counts = {std::vector<double>(placement.slots().size()), std::vector<double>(num_ranks),
                   std::vector<double>(num_ranks)};
  for (size_t source = 0; source < choices.size(); ++source) {
    std::vector<size_t> last_token(num_ranks);  // of each destination, from 1
    for (size_t i = 0; i < choices[source].size(); ++i) {
      const int32_t expert = choices[source][i];
      if (expert < 0) continue;
      const size_t token = i / Size(topk);
      const auto slot =
          Size(placement.PhysicalOf(expert, static_cast<int>(source), static_cast<int>(token)));
      ++counts.rows[slot];
      const size_t rank = slot / Size(placement.slots_per_rank());
      if (rank == source || std::exchange(last_token[rank], token + 1) == token + 1) continue;
      ++counts.sent[source];
      ++counts.received[rank];
    }
  }
  return counts;
}

// Returns the microseconds that the products of an expert with so many rows take.
double ProductUs(const SimulatedParts& parts, double rows) {
  if (rows == 0) return 0;
  const double weights = kMatrices * parts.hidden * parts.intermediate;
  const double compute = 2 * weights * rows / (parts.tflops * 1e6);
  const double reading = kBytesPerElement * weights / (parts.weights_tbps * 1e6);
  return std::max(compute, reading);
}

// Returns the microseconds of dispatch and combine: `crossing` rows of a rank cross links, and its
// experts have `rows`.
double LinkUs(const SimulatedParts& parts, double crossing, double rows) {
  const double row_bytes = parts.hidden * kBytesPerElement;
  return 2 * std::max(crossing * row_bytes / (parts.link_gbps * 1e3),
                      rows * row_bytes / (parts.rows_tbps * 1e6));
}

double Most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}
double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Adds up the elements of each rank, of those of all slots.
std::vector<double> OfRanks(const Placement& placement, const std::vector<double>& of_slots) {
  std::vector<double> of_ranks(Size(placement.num_ranks()));
  for (size_t slot = 0; slot < of_slots.size(); ++slot) {
    of_ranks[slot / Size(placement.slots_per_rank())] += of_slots[slot];
  }
  return of_ranks;
}

SimulatedStep Added(const SimulatedParts& parts, SimulatedStep step) {
  step.us = parts.call_us + step.link_us + step.product_us;
  return step;
}

std::vector<double> ProductsOf(const SimulatedParts& parts, const std::vector<double>& rows) {
  std::vector<double> us;
  for (const double of_slot : rows) us.push_back(ProductUs(parts, of_slot));
  return us;
}

// Returns how many slots get another expert.
int Moved(const Placement& from, const Placement& to) {
  int moved = 0;
  for (size_t slot = 0; slot < to.slots().size(); ++slot) {
    const int32_t expert = to.slots()[slot];
    const auto rank = static_cast<int>(slot / Size(to.slots_per_rank()));
    if (expert != Placement::kFreeSlot && from.ReplicaOn(rank, expert) < 0) ++moved;
  }
  return moved;
}

std::vector<double> LoadsOf(const StepChoices& choices, int num_experts) {
  std::vector<double> loads(Size(num_experts));
  for (const std::vector<int32_t>& of_rank : choices) {
    for (const int32_t expert : of_rank) {
      if (expert >= 0) ++loads[Size(expert)];
    }
  }
  return loads;
}

absl::StatusOr<std::vector<StepChoices>> Draw(const SimulationSpec& spec) {
  const bool recorded = spec.workload.routing.kind == RoutingKind::kFile;
  const auto topk = Size(spec.workload.config.topk);
  std::vector<StepChoices> steps;
  std::unique_ptr<Workload> workload;
  for (int step = 0; step < spec.steps; ++step) {
    if (workload == nullptr || (spec.drift > 0 && step % spec.drift == 0)) {
      WorkloadSpec drawn = spec.workload;
      // The seed says which experts are popular. Those of ranks follow each other.
      if (spec.drift > 0) drawn.seed += Size(step / spec.drift) * Size(kMaxPlacementRanks);
      OCTET_ASSIGN_OR_RETURN(workload, Workload::Create(drawn));
    }
    workload->Generate(static_cast<uint32_t>(step));
    StepChoices& choices = steps.emplace_back();
    for (const StepInput::PerRank& rank : workload->ranks()) {
      const size_t tokens = rank.topk_idx.size() / topk;
      const size_t first = recorded ? tokens * Size(step) / Size(spec.steps) : 0;
      const size_t end = recorded ? tokens * Size(step + 1) / Size(spec.steps) : tokens;
      choices.emplace_back(rank.topk_idx.begin() + static_cast<ptrdiff_t>(first * topk),
                           rank.topk_idx.begin() + static_cast<ptrdiff_t>(end * topk));
    }
  }
  return steps;
}

// The mean of steps.
class Mean {
 public:
  void Add(const SimulatedStep& step) {
    run_.mean.us += step.us;
    run_.mean.link_us += step.link_us;
    run_.mean.product_us += step.product_us;
    run_.mean.imbalance += step.imbalance;
    run_.most_us = std::max(run_.most_us, step.us);
    ++steps_;
  }
  void Move(int experts) { run_.moved += experts; }

  SimulatedRun Of(std::string name) const {
    SimulatedRun run = run_;
    run.name = std::move(name);
    for (double* const sum :
         {&run.mean.us, &run.mean.link_us, &run.mean.product_us, &run.mean.imbalance, &run.moved}) {
      *sum /= steps_;
    }
    return run;
  }

 private:
  SimulatedRun run_ = {.name = {}, .mean = {.imbalance = 0}};
  int steps_ = 0;
};

}  // namespace

SimulatedStep SimulateStep(const SimulatedParts& parts, const Placement& placement, int topk,
                           const StepChoices& choices) {
  const Counts counts = CountOf(placement, topk, choices);
  const std::vector<double> rows = OfRanks(placement, counts.rows);
  const double mean = Sum(rows) / placement.num_ranks();
  const double crossing = std::max(Most(counts.sent), Most(counts.received));
  return Added(parts, {.link_us = LinkUs(parts, crossing, Most(rows)),
                       .product_us = Most(OfRanks(placement, ProductsOf(parts, counts.rows))),
                       .imbalance = mean > 0 ? Most(rows) / mean : 1});
}

SimulatedStep SimulateEvenStep(const SimulatedParts& parts, const Placement& placement, int topk,
                               const StepChoices& choices) {
  const Counts counts = CountOf(placement, topk, choices);
  const double ranks = placement.num_ranks();
  return Added(parts, {.link_us = LinkUs(parts, Sum(counts.sent) / ranks, Sum(counts.rows) / ranks),
                       .product_us = Sum(ProductsOf(parts, counts.rows)) / ranks});
}

absl::StatusOr<std::vector<SimulatedRun>> Simulate(const SimulationSpec& spec) {
  const int topk = spec.workload.config.topk;
  const int experts = spec.workload.config.num_experts;
  const int ranks = spec.workload.num_ranks;
  OCTET_ASSIGN_OR_RETURN(const std::vector<StepChoices> steps, Draw(spec));
  OCTET_ASSIGN_OR_RETURN(const Placement in_order, Placement::InOrder(experts, ranks));
  OCTET_ASSIGN_OR_RETURN(const Placement once,
                         PlanPlacement(LoadsOf(steps[0], experts), ranks, spec.slots));
  Placement planned = once;
  std::vector<double> since(Size(experts));
  Mean before;
  Mean fixed;
  Mean anew;
  Mean even;
  for (size_t step = 0; step < steps.size(); ++step) {
    if (step > 0 && step % Size(spec.replan) == 0) {
      OCTET_ASSIGN_OR_RETURN(Placement next, PlanPlacement(since, ranks, spec.slots));
      anew.Move(Moved(planned, next));
      planned = std::move(next);
      since.assign(since.size(), 0);
    }
    before.Add(SimulateStep(spec.parts, in_order, topk, steps[step]));
    fixed.Add(SimulateStep(spec.parts, once, topk, steps[step]));
    anew.Add(SimulateStep(spec.parts, planned, topk, steps[step]));
    even.Add(SimulateEvenStep(spec.parts, planned, topk, steps[step]));
    const std::vector<double> loads = LoadsOf(steps[step], experts);
    for (size_t e = 0; e < loads.size(); ++e) since[e] += loads[e];
  }
  return std::vector<SimulatedRun>{before.Of("in order"), fixed.Of("planned once"),
                                   anew.Of(absl::StrCat("every ", spec.replan, " steps")),
                                   even.Of("equal shares")};
}

}  // namespace octet
