#include "tools/workload/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "tools/workload/normal.h"

namespace octet {
namespace {

// Beyond this exponent only the most popular experts are ever chosen.
constexpr double kMostZipfExponent = 100;

// Word 3 of the counters of the only stream that depends on nothing but the seed.
constexpr uint32_t kPopularityStream = 0x706f7075;

// The first `chosen` of 0 .. n-1 in random order, in place: Fisher and Yates' shuffle, stopped
// early.
void DrawDistinct(PhiloxStream& stream, int n, int chosen, std::vector<int32_t>& numbers) {
  numbers.resize(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int i = 0; i < chosen; ++i) {
    const auto j = static_cast<size_t>(i) + stream.Below(static_cast<uint32_t>(n - i));
    std::swap(numbers[static_cast<size_t>(i)], numbers[j]);
  }
}

absl::Status BadRouting(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "routing '", text,
      "' is not one of uniform, zipf:S, zipf_sorted:S, group:A/B, one_expert, file:PATH.npy"));
}

}  // namespace

absl::StatusOr<RoutingSpec> ParseRouting(absl::string_view text) {
  RoutingSpec spec;
  spec.text = std::string(text);
  absl::string_view rest = text;
  if (text == "uniform") {
    spec.kind = RoutingKind::kUniform;
  } else if (text == "one_expert") {
    spec.kind = RoutingKind::kOneExpert;
  } else if (absl::ConsumePrefix(&rest, "zipf:") || absl::ConsumePrefix(&rest, "zipf_sorted:")) {
    spec.kind = RoutingKind::kZipf;
    spec.zipf_sorted = absl::StartsWith(text, "zipf_sorted");
    if (!absl::SimpleAtod(rest, &spec.zipf_exponent)) return BadRouting(text);
    if (!(spec.zipf_exponent >= 0 && spec.zipf_exponent <= kMostZipfExponent)) {
      return absl::InvalidArgumentError(absl::StrCat("routing '", text, "' has an exponent of ",
                                                     spec.zipf_exponent, "; it must be from 0 to ",
                                                     kMostZipfExponent));
    }
  } else if (absl::ConsumePrefix(&rest, "group:")) {
    spec.kind = RoutingKind::kGroup;
    const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &spec.groups_chosen) ||
        !absl::SimpleAtoi(parts[1], &spec.num_groups)) {
      return BadRouting(text);
    }
    if (spec.groups_chosen < 1 || spec.groups_chosen > spec.num_groups) {
      return absl::InvalidArgumentError(
          absl::StrCat("routing '", text, "' chooses ", spec.groups_chosen, " of ", spec.num_groups,
                       " groups; it must be at least 1 and no more than all"));
    }
  } else if (absl::ConsumePrefix(&rest, "file:")) {
    spec.kind = RoutingKind::kFile;
    if (rest.empty()) return BadRouting(text);
    spec.path = std::string(rest);
  } else {
    return BadRouting(text);
  }
  return spec;
}

absl::Status CheckRouting(const RoutingSpec& spec, int num_experts, int topk) {
  if (spec.kind != RoutingKind::kGroup) return absl::OkStatus();
  if (num_experts % spec.num_groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("routing '", spec.text, "' has ",
                                                   spec.num_groups, " groups; ", num_experts,
                                                   " experts cannot be divided so"));
  }
  const int open = num_experts / spec.num_groups * spec.groups_chosen;
  if (open < topk) {
    return absl::InvalidArgumentError(absl::StrCat("routing '", spec.text, "' leaves a token ",
                                                   open, " experts, fewer than topk ", topk));
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordedRouting> RecordedFromNpy(const NpyArray& array, int num_ranks) {
  const std::vector<int64_t>& shape = array.shape;
  const std::string text = absl::StrCat("(", absl::StrJoin(shape, ", "), ")");
  if (shape.size() != 2 && shape.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", text, " is neither [ranks, T, K] nor [T, K]"));
  }
  if (shape.size() == 3 && shape[0] != num_ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", text, " has ", shape[0], " ranks; ", num_ranks, " are to run"));
  }
  if (shape.size() == 2 && shape[0] % num_ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", text, " has ", shape[0],
                                                   " tokens, which cannot be split evenly over ",
                                                   num_ranks, " ranks"));
  }
  if (shape.back() < 1 || shape.back() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", text, " has ", shape.back(), " choices for a token"));
  }
  OCTET_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, NpyToInt32(array));
  RecordedRouting routing;
  routing.topk = static_cast<int>(shape.back());
  const size_t each = ids.size() / static_cast<size_t>(num_ranks);
  for (size_t rank = 0; rank < static_cast<size_t>(num_ranks); ++rank) {
    const auto first = ids.begin() + static_cast<ptrdiff_t>(rank * each);
    routing.topk_idx.emplace_back(first, first + static_cast<ptrdiff_t>(each));
  }
  return routing;
}

absl::Status CheckRecorded(const RecordedRouting& routing, int num_experts) {
  const auto topk = static_cast<size_t>(routing.topk);
  std::vector<int64_t> last_token(static_cast<size_t>(num_experts));
  int64_t serial = 0;  // of the token, over all ranks, from 1
  for (size_t rank = 0; rank < routing.topk_idx.size(); ++rank) {
    const std::vector<int32_t>& ids = routing.topk_idx[rank];
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i % topk == 0) ++serial;
      const int32_t id = ids[i];
      if (id == -1) continue;
      const auto where = [&] {
        return absl::StrCat("rank ", rank, ", token ", i / topk, ", k ", i % topk, ": expert id ",
                            id);
      };
      if (id < -1 || id >= num_experts) {
        return absl::InvalidArgumentError(
            absl::StrCat(where(), " is not from -1 (dropped) to ", num_experts - 1));
      }
      int64_t& last = last_token[static_cast<size_t>(id)];
      if (last == serial) {
        return absl::InvalidArgumentError(
            absl::StrCat(where(), " is there already; a token's experts must differ"));
      }
      last = serial;
    }
  }
  return absl::OkStatus();
}

RoutingGenerator::RoutingGenerator(const RoutingSpec& spec, int num_experts, uint64_t seed)
    : spec_(spec), num_experts_(num_experts) {
  if (spec.kind != RoutingKind::kZipf) return;
  std::vector<int32_t> by_popularity(static_cast<size_t>(num_experts));
  std::iota(by_popularity.begin(), by_popularity.end(), 0);
  if (!spec.zipf_sorted) {
    PhiloxStream stream(seed, 0, 0, kPopularityStream);
    DrawDistinct(stream, num_experts, num_experts, by_popularity);
  }
  log_unpopularity_.resize(by_popularity.size());
  for (size_t n = 0; n < by_popularity.size(); ++n) {
    log_unpopularity_[static_cast<size_t>(by_popularity[n])] =
        spec.zipf_exponent * PortableLog(static_cast<double>(n + 1));
  }
}

void RoutingGenerator::Draw(PhiloxStream& stream, Scratch& scratch,
                            absl::Span<int32_t> topk_idx) const {
  const auto topk = static_cast<int>(topk_idx.size());
  switch (spec_.kind) {
    case RoutingKind::kUniform: {
      DrawDistinct(stream, num_experts_, topk, scratch.experts);
      std::copy_n(scratch.experts.begin(), topk, topk_idx.begin());
      return;
    }
    case RoutingKind::kZipf: {
      // A race: expert e arrives after an exponential time of rate n(e)^-S. The first K to arrive
      // are distributed as K draws without replacement, however unlikely the last of them. Times
      // are compared by their logarithms, which do not underflow.
      const auto n = static_cast<size_t>(num_experts_);
      scratch.experts.resize(n);
      scratch.keys.resize(n);
      for (size_t e = 0; e < n; ++e) {
        scratch.experts[e] = static_cast<int32_t>(e);
        scratch.keys[e] = PortableLog(-PortableLog(stream.UniformDouble())) + log_unpopularity_[e];
      }
      std::partial_sort(scratch.experts.begin(), scratch.experts.begin() + topk,
                        scratch.experts.end(), [&](int32_t a, int32_t b) {
                          const double key_a = scratch.keys[static_cast<size_t>(a)];
                          const double key_b = scratch.keys[static_cast<size_t>(b)];
                          return key_a != key_b ? key_a < key_b : a < b;
                        });
      std::copy_n(scratch.experts.begin(), topk, topk_idx.begin());
      return;
    }
    case RoutingKind::kGroup: {
      const int group_size = num_experts_ / spec_.num_groups;
      DrawDistinct(stream, spec_.num_groups, spec_.groups_chosen, scratch.experts);
      const std::vector<int32_t> groups(scratch.experts.begin(),
                                        scratch.experts.begin() + spec_.groups_chosen);
      DrawDistinct(stream, group_size * spec_.groups_chosen, topk, scratch.experts);
      for (size_t k = 0; k < topk_idx.size(); ++k) {
        const int32_t place = scratch.experts[k];
        topk_idx[k] =
            groups[static_cast<size_t>(place / group_size)] * group_size + place % group_size;
      }
      return;
    }
    case RoutingKind::kOneExpert:
    case RoutingKind::kFile:
      std::fill(topk_idx.begin(), topk_idx.end(), -1);
      if (!topk_idx.empty()) topk_idx[0] = 0;
      return;
  }
}

}  // namespace octet
