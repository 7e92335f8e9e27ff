// Placements in C: planning them and their moves.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/bindings/c/abi.h"
#include "kernels/bindings/c/handles.h"
#include "octet/expert_parallel.h"
#include "octet/octet.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"

namespace octet::c {

absl::StatusOr<Placement> PlacementOf(const PlacementTable& table) {
  if (table.slots == nullptr) return Placement();
  if (table.slots_per_rank < 1 || table.slots_per_rank > kMaxPhysicalExperts) {
    return Refused(absl::StrCat("the slots of a rank are ", table.slots_per_rank,
                                ", and must be 1 to ", kMaxPhysicalExperts));
  }
  if (table.num_ranks < 1 || table.num_ranks > kMaxPlacementRanks) {
    return Refused(
        absl::StrCat("the ranks are ", table.num_ranks, ", and must be 1 to ", kMaxPlacementRanks));
  }
  const size_t slots =
      static_cast<size_t>(table.num_ranks) * static_cast<size_t>(table.slots_per_rank);
  return Placement::Create(table.num_experts, table.num_ranks,
                           absl::MakeConstSpan(table.slots, slots));
}

void CopyLoads(const ExpertLoads& loads, int64_t* rows, int64_t* window) {
  if (rows != nullptr) absl::c_copy(loads.rows, rows);
  if (window != nullptr) absl::c_copy(loads.window, window);
}

}  // namespace octet::c

using octet::c::Call;
using octet::c::NotNull;
using octet::c::PlacementOf;
using octet::c::PlacementTable;

int32_t octet_plan_placement(const double* loads, int32_t num_experts, int32_t num_ranks,
                             int32_t slots_per_rank, int32_t* slots) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"loads", loads}, {"slots", slots}}));
    if (num_experts < 1) return octet::c::Refused("num_experts must be at least 1");
    OCTET_ASSIGN_OR_RETURN(
        const octet::Placement placement,
        octet::PlanPlacement(absl::MakeConstSpan(loads, static_cast<size_t>(num_experts)),
                             num_ranks, slots_per_rank));
    absl::c_copy(placement.slots(), slots);
    return absl::OkStatus();
  });
}

int32_t octet_plan_moves(const octet_move_args* args, int32_t max_steps, int32_t* steps,
                         int32_t* num_steps) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const octet_move_args read, octet::c::Read("args", args));
    OCTET_RETURN_IF_ERROR(
        NotNull({{"current", read.current}, {"wanted", read.wanted}, {"num_steps", num_steps}}));
    PlacementTable table = {read.current, read.num_experts, read.num_ranks, read.slots_per_rank};
    OCTET_ASSIGN_OR_RETURN(const octet::Placement from, PlacementOf(table));
    table.slots = read.wanted;
    OCTET_ASSIGN_OR_RETURN(const octet::Placement to, PlacementOf(table));
    OCTET_ASSIGN_OR_RETURN(const std::vector<octet::Placement> plan, octet::PlanMoves(from, to));
    *num_steps = static_cast<int32_t>(plan.size());
    if (*num_steps > max_steps) return absl::OkStatus();
    if (!plan.empty()) OCTET_RETURN_IF_ERROR(NotNull({{"steps", steps}}));
    for (const octet::Placement& step : plan) steps = absl::c_copy(step.slots(), steps);
    return absl::OkStatus();
  });
}
