#include "tools/workload/expert_loads.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "tools/support/npy.h"

namespace octet {
namespace {

constexpr size_t kMostLoadBytes = size_t{1} << 28;

template <typename T>
std::vector<double> Numbers(const NpyArray& array) {
  std::vector<T> values(array.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array.data.data(), values.size() * sizeof(T));
  return {values.begin(), values.end()};
}

std::optional<std::vector<double>> NumbersOf(const NpyArray& array) {
  switch (array.type) {
    case NpyType::kInt32:
      return Numbers<int32_t>(array);
    case NpyType::kInt64:
      return Numbers<int64_t>(array);
    case NpyType::kFloat32:
      return Numbers<float>(array);
    case NpyType::kFloat64:
      return Numbers<double>(array);
    case NpyType::kUint8:
    case NpyType::kFloat16:
    case NpyType::kUint16:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::vector<double> LoadsOf(absl::Span<const RankInput> inputs, int num_experts) {
  std::vector<double> loads(static_cast<size_t>(num_experts));
  for (const RankInput& input : inputs) {
    for (const int32_t expert : input.topk_idx) {
      if (expert >= 0) ++loads[static_cast<size_t>(expert)];
    }
  }
  return loads;
}

absl::StatusOr<std::vector<double>> ReadLoads(const std::string& path, int num_experts) {
  OCTET_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(path, kMostLoadBytes));
  const std::optional<std::vector<double>> numbers = NumbersOf(array);
  if (!numbers.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": dtype is ", NpyTypeName(array.type),
                     "; it must be int32, int64, float32 or float64"));
  }
  const size_t dimensions = array.shape.size();
  if ((dimensions != 1 && dimensions != 2) || array.shape.back() != num_experts) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": shape (", absl::StrJoin(array.shape, ", "),
                     ") is neither [experts] nor [parts, experts] of ", num_experts, " experts"));
  }
  std::vector<double> loads(static_cast<size_t>(num_experts));
  for (size_t i = 0; i < numbers->size(); ++i) loads[i % loads.size()] += (*numbers)[i];
  return loads;
}

}  // namespace octet
