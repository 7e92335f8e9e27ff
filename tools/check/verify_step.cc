#include "tools/check/verify_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "octet/dtype.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

// What is said about the rows.
absl::Status ReadLayout(HostReader& reader, const EpConfig& config,
                        const DispatchVerifier& verifier, const Received& received,
                        ReceivedLayout& layout) {
  const ReferenceReceived& want = verifier.reference();
  const auto read = [&](const auto* from, size_t count, auto& to) {
    return from == nullptr ? absl::OkStatus() : reader.Read(from, count, to);
  };
  OCTET_RETURN_IF_ERROR(
      read(received.expert_counts, want.expert_counts.size(), layout.expert_counts));
  OCTET_RETURN_IF_ERROR(
      read(received.expert_offsets, want.expert_offsets.size(), layout.expert_offsets));
  layout.sources.resize(received.sources != nullptr ? verifier.num_sources() : 0);
  for (const RowRange& range : verifier.RowsOf(layout.sources.size())) {
    const auto first = static_cast<size_t>(range.first);
    const size_t bytes = static_cast<size_t>(range.count) * sizeof(RowSource);
    if (bytes == 0 || layout.sources.empty()) continue;
    OCTET_RETURN_IF_ERROR(reader.Read(received.sources + first, bytes, &layout.sources[first]));
  }
  OCTET_RETURN_IF_ERROR(read(received.low_latency.ranges, want.ranges.size(), layout.ranges));
  OCTET_RETURN_IF_ERROR(
      read(received.low_latency.split_counts, want.split_counts.size(), layout.split_counts));
  OCTET_RETURN_IF_ERROR(read(received.high_throughput.source_offsets, want.source_offsets.size(),
                             layout.source_offsets));
  OCTET_RETURN_IF_ERROR(
      read(received.high_throughput.row_weights, want.row_weights.size(), layout.row_weights));
  if (config.high_throughput.duplicates == Duplicates::kIndex) {
    OCTET_RETURN_IF_ERROR(
        read(received.high_throughput.row_index, want.row_index.size(), layout.row_index));
  }
  OCTET_RETURN_IF_ERROR(read(received.high_throughput.recv_topk_idx, want.recv_topk_idx.size(),
                             layout.recv_topk_idx));
  return read(received.high_throughput.recv_topk_weights, want.recv_topk_weights.size(),
              layout.recv_topk_weights);
}

}  // namespace

size_t LargestRow(const EpConfig& config) {
  return std::max({config.received_row_bytes(), config.dtype_row_bytes(),
                   static_cast<size_t>(config.scale_words()) * sizeof(uint32_t)});
}

absl::Status StepVerifier::Read(const Received& received, ReceivedRows& rows) {
  const DispatchVerifier verifier(config_, inputs_, rank_);
  OCTET_RETURN_IF_ERROR(ReadLayout(reader_, config_, verifier, received, rows.layout));
  std::vector<RowSource> sources;
  const auto append = [&](const void* from, const RowRange& range, size_t row_bytes,
                          auto& to) -> absl::Status {
    using Element = std::remove_reference_t<decltype(to)>::value_type;
    const size_t count = static_cast<size_t>(range.count) * row_bytes / sizeof(Element);
    to.resize(to.size() + count);
    return reader_.Read(
        static_cast<const char*>(from) + static_cast<size_t>(range.first) * row_bytes,
        count * sizeof(Element), to.data() + (to.size() - count));
  };
  for (const RowRange& range : verifier.RowsOf(verifier.num_rows())) {
    OCTET_RETURN_IF_ERROR(append(received.x, range, received.row_bytes, rows.x));
    if (config_.scale_words() > 0) {
      const size_t bytes = static_cast<size_t>(config_.scale_words()) * sizeof(uint32_t);
      OCTET_RETURN_IF_ERROR(append(received.scales, range, bytes, rows.scales));
    }
    for (int32_t row = range.first; row < range.first + range.count; ++row) {
      rows.places.push_back(row);
      if (config_.rows_apart()) sources.push_back(rows.layout.sources[static_cast<size_t>(row)]);
    }
  }
  if (config_.rows_apart()) rows.layout.sources = std::move(sources);
  return absl::OkStatus();
}

absl::Status StepVerifier::CheckReceived(const Received& received, Verification& verification) {
  DispatchVerifier verifier(config_, inputs_, rank_);
  ReceivedLayout layout;
  OCTET_RETURN_IF_ERROR(ReadLayout(reader_, config_, verifier, received, layout));
  verifier.CheckLayout(layout);
  const auto for_rows = [&](const void* from, size_t row_bytes, auto check) -> absl::Status {
    for (const RowRange& range : verifier.RowsOf(verifier.num_rows())) {
      const auto first = static_cast<size_t>(range.first);
      OCTET_RETURN_IF_ERROR(reader_.ForRows(
          static_cast<const char*>(from) + first * row_bytes, static_cast<size_t>(range.count),
          row_bytes,
          [&](size_t row, absl::Span<const uint8_t> rows) { check(first + row, rows); }));
    }
    return absl::OkStatus();
  };
  OCTET_RETURN_IF_ERROR(for_rows(
      received.x, received.row_bytes,
      [&](size_t first, absl::Span<const uint8_t> rows) { verifier.CheckRows(first, rows); }));
  if (config_.scale_words() > 0) {
    const size_t bytes = static_cast<size_t>(config_.scale_words()) * sizeof(uint32_t);
    OCTET_RETURN_IF_ERROR(
        for_rows(received.scales, bytes, [&](size_t first, absl::Span<const uint8_t> rows) {
          verifier.CheckScales(first,
                               absl::MakeConstSpan(reinterpret_cast<const uint32_t*>(rows.data()),
                                                   rows.size() / sizeof(uint32_t)));
        }));
  }
  verification.Add(verifier.result());
  return absl::OkStatus();
}

absl::Status StepVerifier::CheckY(const void* y, const RankInput& input, const CombineTerms& terms,
                                  Verification& verification) {
  CombineVerifier verifier(config_, static_cast<int>(inputs_.size()), rank_, input, terms);
  const size_t row_bytes = config_.dtype_row_bytes();
  OCTET_RETURN_IF_ERROR(reader_.ForRows(
      y, static_cast<size_t>(input.num_tokens), row_bytes,
      [&](size_t first, absl::Span<const uint8_t> rows) {
        verifier.CheckRows(first,
                           absl::MakeConstSpan(reinterpret_cast<const uint16_t*>(rows.data()),
                                               rows.size() / sizeof(uint16_t)));
      }));
  verification.Add(verifier.result());
  return absl::OkStatus();
}

}  // namespace octet
