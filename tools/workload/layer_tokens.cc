#include "tools/workload/layer_tokens.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "tools/workload/normal.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

template <typename T>
T Load(const std::string& data, size_t index) {
  T value;
  std::memcpy(&value, data.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Element `index` as the dtype.
uint16_t ElementAt(const NpyArray& array, size_t index, DType dtype) {
  if (array.type == NpyType::kFloat32) return BitsFromFloat(dtype, Load<float>(array.data, index));
  const auto bits = Load<uint16_t>(array.data, index);
  const DType type = array.type == NpyType::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
  return type == dtype ? bits : BitsFromFloat(dtype, FloatFromBits(type, bits));
}

absl::Status CheckArray(const NpyArray& array, int hidden, int num_ranks) {
  if (array.type != NpyType::kFloat16 && array.type != NpyType::kFloat32 &&
      array.type != NpyType::kUint16) {
    return absl::InvalidArgumentError(
        absl::StrCat("has elements of ", NpyTypeName(array.type),
                     "; they must be float16, float32, or uint16, which means bfloat16"));
  }
  const std::vector<int64_t>& shape = array.shape;
  const bool split = shape.size() == 2 && shape[1] == hidden;
  const bool by_rank = shape.size() == 3 && shape[0] == num_ranks && shape[2] == hidden;
  if (!split && !by_rank) {
    return absl::InvalidArgumentError(absl::StrCat("has shape [", absl::StrJoin(shape, ", "),
                                                   "]; it must be [T, ", hidden, "] or [",
                                                   num_ranks, ", T, ", hidden, "]"));
  }
  const int64_t tokens = split ? shape[0] : shape[0] * shape[1];
  if (tokens > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("has too many tokens, ", tokens));
  }
  return absl::OkStatus();
}

}  // namespace

int LayerTokens::count(int rank) const {
  return static_cast<int>(rows[static_cast<size_t>(rank)].size()) / hidden;
}

std::vector<int> LayerTokens::counts() const {
  std::vector<int> counts;
  for (int rank = 0; rank < num_ranks(); ++rank) counts.push_back(count(rank));
  return counts;
}

int LayerTokens::total() const {
  int sum = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) sum += count(rank);
  return sum;
}

int LayerTokens::most() const {
  int most = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) most = std::max(most, count(rank));
  return most;
}

LayerTokens LayerTokens::OfRanks(int first, int num_ranks) const {
  const auto begin = rows.begin() + first;
  return {.leading = {}, .rows = {begin, begin + num_ranks}, .hidden = hidden};
}

absl::StatusOr<LayerTokens> SplitTokens(const NpyArray& array, int hidden, int num_ranks,
                                        DType dtype) {
  OCTET_RETURN_IF_ERROR(CheckArray(array, hidden, num_ranks));
  LayerTokens tokens;
  tokens.hidden = hidden;
  tokens.leading.assign(array.shape.begin(), array.shape.end() - 1);
  size_t total = 1;
  for (const int64_t dimension : tokens.leading) total *= static_cast<size_t>(dimension);
  const auto ranks = static_cast<size_t>(num_ranks);
  size_t next = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t elements =
        (total / ranks + (rank < total % ranks ? 1 : 0)) * static_cast<size_t>(hidden);
    std::vector<uint16_t>& mine = tokens.rows.emplace_back(elements);
    for (uint16_t& element : mine) element = ElementAt(array, next++, dtype);
  }
  return tokens;
}

LayerTokens RandomTokens(int tokens, int hidden, int num_ranks, DType dtype, uint64_t seed) {
  constexpr uint32_t kTokenDraws = 0x746f6b;  // tells these draws from others of the seed
  LayerTokens made;
  made.hidden = hidden;
  made.leading = {num_ranks, tokens};
  std::vector<uint32_t> words(static_cast<size_t>(hidden));
  std::vector<float> normals(words.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<uint16_t>& mine = made.rows.emplace_back();
    for (int token = 0; token < tokens; ++token) {
      PhiloxStream stream(seed, kTokenDraws, static_cast<uint32_t>(rank),
                          static_cast<uint32_t>(token));
      for (uint32_t& word : words) word = stream.Next();
      NormalsFromWords(words.data(), words.size(), normals.data());
      for (const float normal : normals) mine.push_back(BitsFromFloat(dtype, normal));
    }
  }
  return made;
}

}  // namespace octet
