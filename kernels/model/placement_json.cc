#include "octet/placement_json.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/model/bounded_json.h"
#include "octet/ep_config.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr int kSchema = 1;
constexpr const char* kSchemaMember = "schema";
constexpr const char* kExperts = "experts";
constexpr const char* kRanks = "ranks";  // an array of the slots of each

std::optional<int32_t> AsInt(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()}) {
    return std::nullopt;
  }
  const auto number = value.get<int64_t>();
  if (number < std::numeric_limits<int32_t>::min()) return std::nullopt;
  return static_cast<int32_t>(number);
}

absl::Status Wrong(absl::string_view where, const Json& value, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, " is ", Shown(value), "; it must be ", wanted));
}

absl::StatusOr<int> Number(const Json& json, const char* member, absl::string_view origin) {
  const auto found = json.find(member);
  if (found == json.end()) {
    return absl::InvalidArgumentError(absl::StrCat(origin, " has no '", member, "'"));
  }
  const std::optional<int32_t> number = AsInt(*found);
  if (number.has_value()) return *number;
  return Wrong(absl::StrCat(origin, ": '", member, "'"), *found, "a whole number");
}

// Appends the slots of a rank.
absl::Status AddSlots(const Json& rank, absl::string_view where, std::vector<int32_t>& slots) {
  if (!rank.is_array()) return Wrong(where, rank, "an array of the experts in its slots");
  for (const Json& slot : rank) {
    const std::optional<int32_t> expert = AsInt(slot);
    if (!expert.has_value()) return Wrong(where, rank, "an array of whole numbers");
    slots.push_back(*expert);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Placement> ParsePlacement(absl::string_view json, absl::string_view origin) {
  OCTET_ASSIGN_OR_RETURN(const Json tree, ParseJsonObject(json, origin));
  for (const auto& [name, value] : tree.items()) {
    if (absl::c_linear_search(absl::MakeConstSpan({kSchemaMember, kExperts, kRanks}), name)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(origin, ": unknown member ", Shown(Json(name)),
                                                   "; a placement has ", kSchemaMember, ", ",
                                                   kExperts, " and ", kRanks));
  }
  OCTET_ASSIGN_OR_RETURN(const int schema, Number(tree, kSchemaMember, origin));
  if (schema != kSchema) {
    return Wrong(absl::StrCat(origin, ": '", kSchemaMember, "'"), Json(schema),
                 absl::StrCat(kSchema));
  }
  OCTET_ASSIGN_OR_RETURN(const int experts, Number(tree, kExperts, origin));
  const auto ranks = tree.find(kRanks);
  if (ranks == tree.end() || !ranks->is_array() || ranks->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        origin, ": '", kRanks, "' must be an array with the experts in the slots of each rank"));
  }
  std::vector<int32_t> slots;
  size_t per_rank = 0;
  for (size_t rank = 0; rank < ranks->size(); ++rank) {
    const size_t before = slots.size();
    const std::string where = absl::StrCat(origin, ": rank ", rank);
    OCTET_RETURN_IF_ERROR(AddSlots((*ranks)[rank], where, slots));
    if (rank == 0) per_rank = slots.size();
    if (slots.size() - before == per_rank) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has ", slots.size() - before, " slots, and rank 0 has ", per_rank,
                     "; a rank with fewer experts has -1 in free slots"));
  }
  absl::StatusOr<Placement> placement =
      Placement::Create(experts, static_cast<int>(ranks->size()), slots);
  if (placement.ok()) return placement;
  return absl::InvalidArgumentError(absl::StrCat(origin, ": ", placement.status().message()));
}

std::string PlacementToJson(const Placement& placement) {
  const auto per_rank = static_cast<size_t>(placement.slots_per_rank());
  std::vector<std::string> ranks;
  for (size_t rank = 0; rank < static_cast<size_t>(placement.num_ranks()); ++rank) {
    ranks.push_back(absl::StrCat(
        "    [", absl::StrJoin(placement.slots().subspan(rank * per_rank, per_rank), ", "), "]"));
  }
  return absl::StrCat("{\n  \"", kSchemaMember, "\": ", kSchema, ",\n  \"", kExperts,
                      "\": ", placement.num_experts(), ",\n  \"", kRanks, "\": [\n",
                      absl::StrJoin(ranks, ",\n"), "\n  ]\n}\n");
}

}  // namespace octet
