#include "tools/check/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/strategy_registry.h"
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

absl::Status Verification::ToStatus() const {
  return bitwise ? absl::OkStatus() : absl::DataLossError(first);
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
                                  const std::vector<T>& want, bool required) {
  if (got.empty()) {
    if (required && !want.empty()) Wrong(absl::StrCat(name, " is missing"));
    return;
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    Wrong(absl::StrCat(name, "[", i, "] is ", got[i], ", not ", want[i]));
  }
}

void DispatchVerifier::CheckArrays(const ReceivedLayout& layout) {
  const bool laid_out = Has(config_.strategy, &StrategyInfo::keeps_layouts);
  const bool tokens = laid_out && config_.output == Output::kDeduplicated;
  CheckArray("expert_counts", layout.expert_counts, reference_.expert_counts, true);
  CheckArray("expert_offsets", layout.expert_offsets, reference_.expert_offsets, true);
  CheckArray("source_offsets", layout.source_offsets, reference_.source_offsets, laid_out);
  CheckArray("row_weights", layout.row_weights, reference_.row_weights, laid_out && !tokens);
  CheckArray("row_index", layout.row_index, reference_.row_index,
             config_.high_throughput.duplicates == Duplicates::kIndex);
  CheckArray("recv_topk_idx", layout.recv_topk_idx, reference_.recv_topk_idx, tokens);
  CheckArray("recv_topk_weights", layout.recv_topk_weights, reference_.recv_topk_weights, tokens);
  CheckArray("split_counts", layout.split_counts, reference_.split_counts,
             config_.output == Output::kRankMajor);
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
}

void DispatchVerifier::CheckSources(const ReceivedLayout& layout) {
  const std::vector<RowSource>& want =
      config_.output == Output::kDeduplicated ? reference_.tokens : reference_.sources;
  if (layout.sources.empty()) {
    if (!want.empty()) Wrong("sources are missing");
    return;
  }
  std::vector<RowSource> sorted = layout.sources;
  if (config_.variant.slots == Slots::kAtomic) SortWithinSources(want, sorted);
  for (size_t i = 0; i < want.size(); ++i) {
    const RowSource& source = sorted[PlaceOf(i)];
    if (AsTuple(source) != AsTuple(want[i])) {
      Wrong(absl::StrCat("row ", PlaceOf(i), " says that it is from ", Text(source),
                         "; it should be ", Text(want[i])));
    }
  }
}

void DispatchVerifier::CheckLayout(const ReceivedLayout& layout) {
  CheckArrays(layout);
  CheckRanges(layout);
  CheckSources(layout);
  row_sources_ = config_.rows_once() ? reference_.tokens : layout.sources;
  row_sources_.resize(num_rows(), {kUnknown, -1, -1, -1});
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
  // Nearly all rows are equal, which this sees sooner.
  if (std::memcmp(got.data(), want.data(), got.size() * sizeof(T)) == 0) return;
  const auto differs = std::mismatch(got.begin(), got.end(), want.begin());
  Wrong(absl::StrCat("row ", row, " (", Text(row_sources_[row]), ") differs from ", what,
                     " at element ", differs.first - got.begin(), ": 0x", absl::Hex(*differs.first),
                     " instead of 0x", absl::Hex(*differs.second)));
}

void DispatchVerifier::CheckRows(size_t first_row, absl::Span<const uint8_t> rows) {
  const size_t row_bytes = config_.received_row_bytes();
  const auto hidden = static_cast<size_t>(config_.hidden);
  const bool fp8 = config_.scale_words() > 0;
  const bool bytes_sent = config_.dispatch_format == DispatchFormat::kBytes;
  const std::vector<uint8_t> zeros(row_bytes);
  for (size_t i = 0; i * row_bytes < rows.size(); ++i) {
    const RowSource& source = row_sources_[first_row + i];
    if (source.rank == kUnknown) continue;  // CheckLayout has said so
    const bool padding = source.rank == kPadding;
    const auto row = rows.subspan(i * row_bytes, row_bytes);
    RankInput want;
    if (!padding) {
      want = inputs_[static_cast<size_t>(source.rank)].Tokens(config_,
                                                              static_cast<size_t>(source.token), 1);
    }
    if (fp8 || (bytes_sent && (padding || !want.bytes.empty()))) {
      // What is beyond the 8-bit floats has no meaning.
      const auto bytes = row.first(fp8 ? hidden : row_bytes);
      CheckRow(first_row + i,
               padding ? "zero"
               : fp8   ? "x in fp8"
                       : "the bytes",
               bytes,
               padding ? absl::MakeConstSpan(zeros)
               : fp8   ? want.fp8
                       : want.bytes);
      continue;
    }
    const auto elements =
        absl::MakeConstSpan(reinterpret_cast<const uint16_t*>(row.data()), hidden);
    const auto zero = absl::MakeConstSpan(reinterpret_cast<const uint16_t*>(zeros.data()), hidden);
    CheckRow(first_row + i, padding ? "zero" : "x", elements, padding ? zero : want.x);
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

void CombineVerifier::CheckRows(size_t first_token, absl::Span<const uint16_t> y) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  const RankInput input = input_.Tokens(config_, first_token, y.size() / hidden);
  const std::vector<uint16_t> reference =
      terms_.nodes.num_nodes > 1
          ? ReferenceCombine(config_, terms_.nodes, input, terms_.expert_scale, terms_.bias)
          : ReferenceCombine(config_, num_ranks_, input, terms_.expert_scale, terms_.bias);
  for (size_t t = 0; t < static_cast<size_t>(input.num_tokens); ++t) {
    const auto got = y.subspan(t * hidden, hidden);
    const auto want = absl::MakeConstSpan(reference).subspan(t * hidden, hidden);
    if (!Same(config_.dtype, got, want)) Wrong(first_token + t, got, want);
  }
}

void CombineVerifier::Wrong(size_t token, absl::Span<const uint16_t> got,
                            absl::Span<const uint16_t> want) {
  result_.bitwise = false;
  ++result_.wrong_tokens;
  for (size_t h = 0; h < got.size(); ++h) {
    const float value = FloatFromBits(config_.dtype, got[h]);
    const float ref = FloatFromBits(config_.dtype, want[h]);
    const double error = Difference(value, ref);
    result_.max_error = std::max(result_.max_error, error);
    if (error > kAbsoluteTolerance + kRelativeTolerance * std::fabs(static_cast<double>(ref))) {
      result_.within_tolerance = false;
    }
    if (result_.first.empty() && !SameBits(config_.dtype, got.subspan(h, 1), want.subspan(h, 1))) {
      result_.first = absl::StrCat("rank ", rank_, ": y of token ", token, " is ", value,
                                   " at element ", h, ", not ", ref);
    }
  }
}

}  // namespace octet
