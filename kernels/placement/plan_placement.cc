// Replication and packing are greedy, as in DeepSeek's load balancer of experts: a slot that is
// left goes to the expert whose replicas have the most load each; then the heaviest replica goes to
// the rank with the least load. As long as that helps the most loaded rank, it exchanges replicas
// with another one, or a slot somewhere gets a replica of another expert.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/config_checks.h"
#include "octet/ep_config.h"
#include "octet/placement.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

// Returns the number of replicas of each expert.
std::vector<int> Replicate(absl::Span<const double> loads, int num_ranks, int num_slots) {
  const auto num_experts = static_cast<int>(loads.size());
  std::vector<int> replicas(loads.size(), 1);
  // By the load of a replica; of equal ones, the first expert.
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry> heaviest;
  for (int e = 0; e < num_experts; ++e) {
    if (loads[Size(e)] > 0 && num_ranks > 1) heaviest.emplace(loads[Size(e)], -e);
  }
  for (int left = num_slots - num_experts; left > 0 && !heaviest.empty(); --left) {
    const int expert = -heaviest.top().second;
    heaviest.pop();
    const int count = ++replicas[Size(expert)];
    if (count < num_ranks) heaviest.emplace(loads[Size(expert)] / count, -expert);
  }
  return replicas;
}

// The slots of ranks while they are filled.
class Packing {
 public:
  Packing(absl::Span<const double> loads, std::vector<int> replicas, int num_ranks,
          int slots_per_rank)
      : expert_loads_(loads),
        slots_per_rank_(slots_per_rank),
        replicas_(std::move(replicas)),
        experts_(Size(num_ranks)),
        loads_(Size(num_ranks)),
        has_(Size(num_ranks), std::vector<char>(loads.size())) {
    std::vector<int> order(loads.size());
    std::iota(order.begin(), order.end(), 0);
    absl::c_sort(order,
                 [&](int a, int b) { return std::pair(-PartOf(a), a) < std::pair(-PartOf(b), b); });
    for (const int expert : order) {
      for (int i = 0; i < replicas_[Size(expert)]; ++i) Place(expert);
    }
  }

  void Improve() {
    const double sum = std::accumulate(expert_loads_.begin(), expert_loads_.end(), 0.0);
    const double enough = sum / static_cast<double>(experts_.size()) * (1 + kUneven);
    // Each step leaves fewer ranks with as much load as the most loaded one had, so they end by
    // themselves; the bound keeps the time in milliseconds.
    for (int i = 0; i < kMostSteps; ++i) {
      const auto most = absl::c_max_element(loads_);
      const auto rank = static_cast<size_t>(std::distance(loads_.begin(), most));
      if (*most <= enough || !(Exchange(rank) || Replace(rank))) return;
    }
  }

  // Returns [R][S] as Placement::Create takes it, the experts of a rank ascending.
  std::vector<int32_t> Slots() const {
    std::vector<int32_t> slots;
    for (std::vector<int> experts : experts_) {
      absl::c_sort(experts);
      slots.insert(slots.end(), experts.begin(), experts.end());
      slots.insert(slots.end(), Size(slots_per_rank_) - experts.size(), Placement::kFreeSlot);
    }
    return slots;
  }

 private:
  static constexpr int kMostSteps = 100;
  // Balanced enough.
  static constexpr double kUneven = 0.005;
  // A step that gains less is not worth its time.
  static constexpr double kLeastGain = 1e-4;
  static constexpr int kNone = -1;  // no expert

  // A step from the most loaded rank, and the most load that a rank has after it, of those whose
  // load it changes.
  struct Step {
    double most = 0;
    size_t rank = 0;
    int out = kNone;
    int in = kNone;
  };

  double LoadOf(int expert) const { return expert_loads_[Size(expert)]; }
  // Returns the load of one of so many replicas more.
  double PartOf(int expert, int more = 0) const {
    return LoadOf(expert) / (replicas_[Size(expert)] + more);
  }
  bool Full(size_t rank) const { return experts_[rank].size() == Size(slots_per_rank_); }
  bool Has(size_t rank, int expert) const { return has_[rank][Size(expert)] != 0; }
  Step NoStep(size_t rank) const { return {.most = loads_[rank] * (1 - kLeastGain)}; }

  void Add(size_t rank, int expert) {
    experts_[rank].push_back(expert);
    loads_[rank] += PartOf(expert);
    has_[rank][Size(expert)] = 1;
  }

  void Remove(size_t rank, int expert) {
    experts_[rank].erase(absl::c_find(experts_[rank], expert));
    loads_[rank] -= PartOf(expert);
    has_[rank][Size(expert)] = 0;
  }

  // Changes the number of an expert's replicas, and with it the load of all ranks that have one.
  void SetReplicas(int expert, int count) {
    const double change = LoadOf(expert) / count - PartOf(expert);
    for (size_t rank = 0; rank < experts_.size(); ++rank) {
      if (Has(rank, expert)) loads_[rank] += change;
    }
    replicas_[Size(expert)] = count;
  }

  void Place(int expert) {
    size_t best = experts_.size();
    for (size_t rank = 0; rank < experts_.size(); ++rank) {
      if (Full(rank) || Has(rank, expert)) continue;
      if (best == experts_.size() || loads_[rank] < loads_[best]) best = rank;
    }
    if (best < experts_.size()) return Add(best, expert);
    // Whoever has a free slot has this expert. A full rank without it has an expert that such a
    // rank lacks, since it has more of them, and gives it away.
    size_t open = 0;
    while (Full(open)) ++open;
    size_t rank = 0;
    while (Has(rank, expert)) ++rank;
    const int given =
        *absl::c_find_if(experts_[rank], [&](int other) { return !Has(open, other); });
    Remove(rank, given);
    Add(open, given);
    Add(rank, expert);
  }

  // Gives a replica of rank `from` to another rank, for one of its replicas or into a free slot.
  // Returns false if that does not help.
  bool Exchange(size_t from) {
    Step best = NoStep(from);
    for (size_t to = 0; to < experts_.size(); ++to) {
      if (to == from || loads_[to] >= best.most) continue;
      const auto consider = [&](int given, int taken) {
        const double moved = PartOf(given) - (taken == kNone ? 0 : PartOf(taken));
        const double most = std::max(loads_[from] - moved, loads_[to] + moved);
        if (most < best.most) best = {.most = most, .rank = to, .out = given, .in = taken};
      };
      for (const int given : experts_[from]) {
        if (Has(to, given)) continue;
        if (!Full(to)) consider(given, kNone);
        for (const int taken : experts_[to]) {
          if (!Has(from, taken)) consider(given, taken);
        }
      }
    }
    if (best.out == kNone) return false;
    Remove(from, best.out);
    if (best.in != kNone) {
      Remove(best.rank, best.in);
      Add(from, best.in);
    }
    Add(best.rank, best.out);
    return true;
  }

  // Puts a replica of one expert into the slot of another's, of those that have several, or into a
  // free one, so that the load of `from` falls. Returns false if that does not help.
  bool Replace(size_t from) {
    std::vector<int> all(expert_loads_.size());
    std::iota(all.begin(), all.end(), 0);
    Step best = NoStep(from);
    for (size_t rank = 0; rank < experts_.size(); ++rank) {
      // Another rank helps `from` by taking part in its experts' load.
      const std::vector<int>& wanted = rank == from ? all : experts_[from];
      std::vector<int> outs = experts_[rank];
      if (!Full(rank)) outs.push_back(kNone);
      for (const int out : outs) {
        if (out != kNone && replicas_[Size(out)] == 1) continue;
        if (rank == from) Consider(from, {.rank = rank, .out = out}, best);
        for (const int in : wanted) {
          if (!Has(rank, in)) Consider(from, {.rank = rank, .out = out, .in = in}, best);
        }
      }
    }
    if (best.out == kNone && best.in == kNone) return false;
    if (best.out != kNone) {
      Remove(best.rank, best.out);
      SetReplicas(best.out, replicas_[Size(best.out)] - 1);
    }
    if (best.in != kNone) {
      SetReplicas(best.in, replicas_[Size(best.in)] + 1);
      Add(best.rank, best.in);
    }
    return true;
  }

  // Makes `step` the best one if it is.
  void Consider(size_t from, Step step, Step& best) const {
    const double more = step.out == kNone ? 0 : PartOf(step.out, -1) - PartOf(step.out);
    const double less = step.in == kNone ? 0 : PartOf(step.in) - PartOf(step.in, 1);
    const auto after = [&](size_t rank) {
      const bool out = step.out != kNone && Has(rank, step.out);
      const bool in = step.in != kNone && Has(rank, step.in);
      if (rank != step.rank) return loads_[rank] + (out ? more : 0) - (in ? less : 0);
      return loads_[rank] - (out ? PartOf(step.out) : 0) +
             (step.in == kNone ? 0 : PartOf(step.in, 1));
    };
    step.most = std::max(after(from), after(step.rank));
    for (size_t rank = 0; rank < experts_.size() && step.most < best.most; ++rank) {
      if (step.out != kNone && Has(rank, step.out)) step.most = std::max(step.most, after(rank));
    }
    if (step.most < best.most) best = step;
  }

  const absl::Span<const double> expert_loads_;
  const int slots_per_rank_;
  std::vector<int> replicas_;              // of each expert
  std::vector<std::vector<int>> experts_;  // of each rank
  std::vector<double> loads_;              // of each rank
  std::vector<std::vector<char>> has_;     // [R][E]
};

}  // namespace

absl::StatusOr<Placement> PlanPlacement(absl::Span<const double> loads, int num_ranks,
                                        int slots_per_rank) {
  const auto num_experts = static_cast<int>(loads.size());
  OCTET_RETURN_IF_ERROR(CheckRange("num_ranks", num_ranks, 1, kMaxPlacementRanks));
  OCTET_RETURN_IF_ERROR(CheckRange("num_experts", num_experts, 1, kMaxExperts));
  OCTET_RETURN_IF_ERROR(
      CheckRange("slots_per_rank", slots_per_rank, 1, kMaxPhysicalExperts / num_ranks));
  for (int e = 0; e < num_experts; ++e) {
    const double load = loads[Size(e)];
    if (std::isfinite(load) && load >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("the load of expert ", e, " is ", load,
                                                   "; loads must be finite and not negative"));
  }
  const int num_slots = num_ranks * slots_per_rank;
  if (num_slots < num_experts) {
    return absl::InvalidArgumentError(absl::StrCat(num_ranks, " ranks with ", slots_per_rank,
                                                   " slots have ", num_slots, " for ", num_experts,
                                                   " experts; every expert needs one"));
  }
  Packing packing(loads, Replicate(loads, num_ranks, num_slots), num_ranks, slots_per_rank);
  packing.Improve();
  return Placement::Create(num_experts, num_ranks, packing.Slots());
}

}  // namespace octet
