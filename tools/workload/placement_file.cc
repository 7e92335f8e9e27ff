#include "tools/workload/placement_file.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "octet/placement_json.h"
#include "runtime/base/status_macros.h"
#include "tools/support/atomic_file.h"
#include "tools/support/npy.h"

namespace octet {
namespace {

// With room for a comma and blanks beside each number.
constexpr size_t kMostPlacementBytes = size_t{kMaxPhysicalExperts} * 32;

bool IsNpy(const std::string& path) { return absl::EndsWith(path, ".npy"); }

absl::StatusOr<Placement> FromNpy(const NpyArray& array, int num_experts) {
  constexpr size_t kDimensions = 2;
  if (array.shape.size() != kDimensions || array.shape[0] < 1 ||
      array.shape[0] > kMaxPlacementRanks) {
    return absl::InvalidArgumentError(absl::StrCat("shape (", absl::StrJoin(array.shape, ", "),
                                                   ") is not [ranks, slots], of 1 to ",
                                                   kMaxPlacementRanks, " ranks"));
  }
  OCTET_ASSIGN_OR_RETURN(const std::vector<int32_t> slots, NpyToInt32(array));
  return Placement::Create(num_experts, static_cast<int>(array.shape[0]), slots);
}

absl::StatusOr<Placement> Read(const std::string& path, int num_experts) {
  if (!IsNpy(path)) {
    OCTET_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostPlacementBytes));
    return ParsePlacement(json, path);
  }
  OCTET_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(path, kMostPlacementBytes));
  absl::StatusOr<Placement> placement = FromNpy(array, num_experts);
  if (placement.ok()) return placement;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", placement.status().message()));
}

}  // namespace

absl::StatusOr<Placement> ReadPlacement(const std::string& path, int num_experts, int num_ranks) {
  OCTET_ASSIGN_OR_RETURN(Placement placement, Read(path, num_experts));
  if (placement.num_experts() == num_experts && placement.num_ranks() == num_ranks) {
    return placement;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, " places ", placement.num_experts(), " experts on ", placement.num_ranks(),
                   " ranks; there are ", num_experts, " experts and ", num_ranks, " ranks"));
}

absl::Status WritePlacement(const std::string& path, const Placement& placement) {
  if (!IsNpy(path)) return WriteFileAtomically(path, {PlacementToJson(placement)});
  return WriteNpy(path, NpyType::kInt32, {placement.num_ranks(), placement.slots_per_rank()},
                  placement.slots().data());
}

}  // namespace octet
