#include "tools/check/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "octet/dtype.h"

namespace octet {
namespace {

// The challenge's tolerance.
constexpr double kAbsoluteTolerance = 5e-3;
constexpr double kRelativeTolerance = 1e-2;

// In the place of a source rank.
constexpr int32_t kPadding = -1;
constexpr int32_t kUnknown = -2;

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

size_t DispatchVerifier::num_sources() const {
  if (config_.rows_apart()) return num_rows();
  return config_.output == Output::kDeduplicated ? reference_.tokens.size()
                                                 : reference_.sources.size();
}

size_t DispatchVerifier::num_rows() const {
  if (!config_.rows_apart()) return reference_.rows(config_).size();
  int32_t end = 0;
  for (const int32_t place : reference_.places) end = std::max(end, place + 1);
  return static_cast<size_t>(end);
}

std::vector<RowRange> DispatchVerifier::RowsOf(size_t all) const {
  if (config_.rows_apart()) return reference_.ranges;
  return {{0, static_cast<int32_t>(all)}};
}

size_t DispatchVerifier::PlaceOf(size_t i) const {
  return config_.rows_apart() ? static_cast<size_t>(reference_.places[i]) : i;
}

template <typename T>
void DispatchVerifier::CheckArray(absl::string_view name, const std::vector<T>& got,
                                  const std::vector<T>& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    Wrong(absl::StrCat(name, "[", i, "] is ", got[i], ", not ", want[i]));
  }
}

void DispatchVerifier::CheckRanges(const ReceivedLayout& layout) {
  if (config_.rows_apart() && layout.ranges.empty()) Wrong("ranges are missing");
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const RowRange& got = layout.ranges[i];
    const RowRange& want = reference_.ranges[i];
    if (got.first == want.first && got.count == want.count) continue;
    Wrong(absl::StrCat("ranges[", i, "] is ", got.count, " rows from row ", got.first, ", not ",
                       want.count, " from ", want.first));
  }
  if (config_.output == Output::kRankMajor && layout.split_counts.empty()) {
    Wrong("split_counts are missing");
  }
  CheckArray("split_counts", layout.split_counts, reference_.split_counts);
}

void DispatchVerifier::CheckLayout(const ReceivedLayout& layout) {
  CheckArray("expert_counts", layout.expert_counts, reference_.expert_counts);
  CheckArray("expert_offsets", layout.expert_offsets, reference_.expert_offsets);
  CheckArray("source_offsets", layout.source_offsets, reference_.source_offsets);
  CheckArray("row_weights", layout.row_weights, reference_.row_weights);
  CheckArray("row_index", layout.row_index, reference_.row_index);
  CheckArray("recv_topk_idx", layout.recv_topk_idx, reference_.recv_topk_idx);
  CheckArray("recv_topk_weights", layout.recv_topk_weights, reference_.recv_topk_weights);
  CheckRanges(layout);
  const std::vector<RowSource>& want =
      config_.output == Output::kDeduplicated ? reference_.tokens : reference_.sources;
  std::vector<RowSource> sorted = layout.sources;
  if (config_.direct.slots == Slots::kAtomic) SortWithinSources(want, sorted);
  for (size_t i = 0; i < want.size() && !sorted.empty(); ++i) {
    const RowSource& source = sorted[PlaceOf(i)];
    if (AsTuple(source) != AsTuple(want[i])) {
      Wrong(absl::StrCat("row ", PlaceOf(i), " says that it is from ", Text(source),
                         "; it should be ", Text(want[i])));
    }
  }
  row_sources_ = config_.rows_once() ? reference_.tokens : layout.sources;
  const auto num_ranks = static_cast<int>(inputs_.size());
  for (size_t i = 0; i < row_sources_.size(); ++i) {
    RowSource& source = row_sources_[i];
    const bool known = source.rank >= 0 && source.rank < num_ranks && source.token >= 0 &&
                       source.token < inputs_[static_cast<size_t>(source.rank)].num_tokens;
    const bool padding = source.rank == kPadding && !config_.rows_apart() &&
                         reference_.rows(config_)[i].rank == kPadding;
    if (!known && !padding) source.rank = kUnknown;
  }
}

template <typename T>
void DispatchVerifier::CheckRow(size_t row, absl::string_view what, absl::Span<const T> got,
                                absl::Span<const T> want) {
  const auto differs = std::mismatch(got.begin(), got.end(), want.begin());
  if (differs.first == got.end()) return;
  Wrong(absl::StrCat("row ", row, " (", Text(row_sources_[row]), ") differs from ", what,
                     " at element ", differs.first - got.begin(), ": 0x", absl::Hex(*differs.first),
                     " instead of 0x", absl::Hex(*differs.second)));
}

void DispatchVerifier::CheckRows(size_t first_row, absl::Span<const uint8_t> rows) {
  const size_t row_bytes = config_.received_row_bytes();
  const auto hidden = static_cast<size_t>(config_.hidden);
  const std::vector<uint16_t> zeros(hidden);
  for (size_t i = 0; i * row_bytes < rows.size(); ++i) {
    const RowSource& source = row_sources_[first_row + i];
    if (source.rank == kUnknown) continue;  // CheckLayout has said so
    const bool padding = source.rank == kPadding;
    const auto row = rows.subspan(i * row_bytes, row_bytes);
    const auto fp8 = row.first(std::min(hidden, row_bytes));  // what is beyond has no meaning
    RankInput want;
    if (!padding) {
      want = inputs_[static_cast<size_t>(source.rank)].Tokens(config_,
                                                              static_cast<size_t>(source.token), 1);
    }
    if (config_.scale_words() > 0) {
      const auto* none = reinterpret_cast<const uint8_t*>(zeros.data());
      CheckRow(first_row + i, padding ? "zero" : "x in fp8", fp8,
               padding ? absl::MakeConstSpan(none, hidden) : want.fp8);
      continue;
    }
    const auto elements =
        absl::MakeConstSpan(reinterpret_cast<const uint16_t*>(row.data()), hidden);
    const auto x = padding ? absl::MakeConstSpan(zeros) : want.x;
    if (!Same(config_.dtype, elements, x)) {
      CheckRow(first_row + i, padding ? "zero" : "x", elements, x);
    }
  }
}

void DispatchVerifier::CheckScales(size_t first_row, absl::Span<const uint32_t> scales) {
  const auto words = static_cast<size_t>(config_.scale_words());
  const std::vector<uint32_t> zeros(words);
  for (size_t i = 0; i * words < scales.size(); ++i) {
    const RowSource& source = row_sources_[first_row + i];
    if (source.rank == kUnknown) continue;
    absl::Span<const uint32_t> want = zeros;
    if (source.rank != kPadding) {
      want = inputs_[static_cast<size_t>(source.rank)]
                 .Tokens(config_, static_cast<size_t>(source.token), 1)
                 .scales;
    }
    CheckRow(first_row + i, "the scales", scales.subspan(i * words, words), want);
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
