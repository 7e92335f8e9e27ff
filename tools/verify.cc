#include "tools/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/dtype.h"

namespace octet {
namespace {

// The challenge's tolerance.
constexpr double kAbsoluteTolerance = 5e-3;
constexpr double kRelativeTolerance = 1e-2;

auto AsTuple(const RowSource& source) {
  return std::make_tuple(source.rank, source.token, source.k, source.local_expert);
}

std::string Text(const RowSource& source) {
  return absl::StrCat("rank ", source.rank, ", token ", source.token, ", k ", source.k,
                      ", local expert ", source.local_expert);
}

// Sorts each run of rows that come from one (expert, source rank) in `reference` by token.
void SortWithinSources(absl::Span<const RowSource> reference, std::vector<RowSource>& sources) {
  size_t begin = 0;
  while (begin < reference.size()) {
    size_t end = begin + 1;
    while (end < reference.size() && reference[end].rank == reference[begin].rank &&
           reference[end].local_expert == reference[begin].local_expert) {
      ++end;
    }
    std::sort(sources.begin() + static_cast<ptrdiff_t>(begin),
              sources.begin() + static_cast<ptrdiff_t>(end),
              [](const RowSource& a, const RowSource& b) { return AsTuple(a) < AsTuple(b); });
    begin = end;
  }
}

// |a - b|, where equal infinities and two NaNs do not differ.
double Difference(float a, float b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::fabs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

// Equal rows are nearly always equal bytes, which is quicker to see.
bool Same(DType dtype, absl::Span<const uint16_t> a, absl::Span<const uint16_t> b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(uint16_t)) == 0 || SameBits(dtype, a, b);
}

}  // namespace

void Verification::Add(const Verification& other) {
  bitwise = bitwise && other.bitwise;
  within_tolerance = within_tolerance && other.within_tolerance;
  max_error = std::max(max_error, other.max_error);
  wrong_rows += other.wrong_rows;
  wrong_tokens += other.wrong_tokens;
  if (first.empty()) first = other.first;
}

DispatchVerifier::DispatchVerifier(const EpConfig& config, absl::Span<const RankInput> inputs,
                                   int rank)
    : config_(config),
      inputs_(inputs),
      rank_(rank),
      reference_(ReferenceDispatch(config, inputs, rank)) {}

void DispatchVerifier::Wrong(absl::string_view what) {
  result_.bitwise = false;
  ++result_.wrong_rows;
  if (result_.first.empty()) result_.first = absl::StrCat("rank ", rank_, ": ", what);
}

void DispatchVerifier::CheckLayout(absl::Span<const int32_t> expert_counts,
                                   absl::Span<const int32_t> expert_offsets,
                                   absl::Span<const RowSource> sources) {
  for (size_t e = 0; e < reference_.expert_counts.size(); ++e) {
    if (expert_counts[e] != reference_.expert_counts[e]) {
      Wrong(absl::StrCat("expert_counts[", e, "] is ", expert_counts[e], ", not ",
                         reference_.expert_counts[e]));
    }
  }
  for (size_t e = 0; e < reference_.expert_offsets.size(); ++e) {
    if (expert_offsets[e] != reference_.expert_offsets[e]) {
      Wrong(absl::StrCat("expert_offsets[", e, "] is ", expert_offsets[e], ", not ",
                         reference_.expert_offsets[e]));
    }
  }
  sources_.assign(sources.begin(), sources.end());
  std::vector<RowSource> sorted = sources_;
  if (config_.slots == Slots::kAtomic) SortWithinSources(reference_.sources, sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (AsTuple(sorted[i]) != AsTuple(reference_.sources[i])) {
      Wrong(absl::StrCat("row ", i, " says that it is from ", Text(sorted[i]), "; it should be ",
                         Text(reference_.sources[i])));
    }
  }
  const auto num_ranks = static_cast<int>(inputs_.size());
  for (RowSource& source : sources_) {
    const bool known = source.rank >= 0 && source.rank < num_ranks && source.token >= 0 &&
                       source.token < inputs_[static_cast<size_t>(source.rank)].num_tokens;
    if (!known) source.rank = -1;
  }
}

void DispatchVerifier::CheckRows(size_t first_row, absl::Span<const uint16_t> rows) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  for (size_t i = 0; i * hidden < rows.size(); ++i) {
    const RowSource& source = sources_[first_row + i];
    if (source.rank < 0) continue;  // CheckLayout has said so
    const auto x = inputs_[static_cast<size_t>(source.rank)].x.subspan(
        static_cast<size_t>(source.token) * hidden, hidden);
    const auto row = rows.subspan(i * hidden, hidden);
    if (Same(config_.dtype, row, x)) continue;
    const auto differs = std::mismatch(row.begin(), row.end(), x.begin());
    Wrong(absl::StrCat("row ", first_row + i, " (", Text(source), ") differs from x at element ",
                       differs.first - row.begin(), ": 0x", absl::Hex(*differs.first),
                       " instead of 0x", absl::Hex(*differs.second)));
  }
}

Verification VerifyCombine(const EpConfig& config, int num_ranks, const RankInput& input, int rank,
                           int first_token, absl::Span<const float> expert_scale,
                           absl::Span<const uint16_t> y) {
  Verification result;
  const std::vector<uint16_t> reference = ReferenceCombine(config, num_ranks, input, expert_scale);
  const auto hidden = static_cast<size_t>(config.hidden);
  for (size_t t = 0; t < static_cast<size_t>(input.num_tokens); ++t) {
    const auto got = y.subspan(t * hidden, hidden);
    const auto want = absl::MakeConstSpan(reference).subspan(t * hidden, hidden);
    if (Same(config.dtype, got, want)) continue;
    result.bitwise = false;
    ++result.wrong_tokens;
    for (size_t h = 0; h < hidden; ++h) {
      const float value = FloatFromBits(config.dtype, got[h]);
      const float ref = FloatFromBits(config.dtype, want[h]);
      const double error = Difference(value, ref);
      result.max_error = std::max(result.max_error, error);
      if (error > kAbsoluteTolerance + kRelativeTolerance * std::fabs(static_cast<double>(ref))) {
        result.within_tolerance = false;
      }
      if (result.first.empty() && got[h] != want[h]) {
        result.first =
            absl::StrCat("rank ", rank, ": y of token ", static_cast<size_t>(first_token) + t,
                         " is ", value, " at element ", h, ", not ", ref);
      }
    }
  }
  return result;
}

}  // namespace octet
