// The input is a placement as JSON.
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/placement.h"
#include "octet/placement_json.h"
#include "tests/fuzz/check.h"

namespace octet::fuzz {
namespace {

void Run(absl::string_view text) {
  const absl::StatusOr<Placement> placement = ParsePlacement(text, "placement.json");
  if (!placement.ok()) return CheckRefusal(placement.status());
  const int slots = placement->slots_per_rank();
  for (int expert = 0; expert < placement->num_experts(); ++expert) {
    Check(!placement->ReplicasOf(expert).empty());
    for (const int rank : {0, placement->num_ranks() - 1}) {
      const int32_t physical = placement->PhysicalOf(expert, rank, 7);
      Check(placement->slots()[static_cast<size_t>(physical)] == expert);
      const int32_t own = placement->ReplicaOn(rank, expert);
      Check(own < 0 || (own == physical && own / slots == rank));
    }
  }
  const absl::StatusOr<Placement> again = ParsePlacement(PlacementToJson(*placement), "again");
  Check(again.ok() && *again == *placement);
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
