// Checks a step's results against the serial reference.
#ifndef OCTET_TOOLS_CHECK_VERIFY_H_
#define OCTET_TOOLS_CHECK_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/oracle/reference.h"
#include "octet/ep_config.h"

namespace octet {

// The result for one rank, or for several added up.
struct Verification {
  bool bitwise = true;           // everything equals the reference to the bit
  bool within_tolerance = true;  // |y - ref| <= 5e-3 + 1e-2 · |ref|, the challenge's rule
  double max_error = 0;          // greatest |y - ref|; infinite if only one of them is a number
  int64_t wrong_rows = 0;        // received rows, or their descriptions
  int64_t wrong_tokens = 0;      // rows of y
  std::string first;             // the first difference in words; empty if there is none

  void Add(const Verification& other);
  // Returns kDataLoss with the first difference, or OK if everything is right to the bit.
  absl::Status ToStatus() const;
};

// The description of received rows, in host memory: as in Received. Empty: Received has none.
struct ReceivedLayout {
  std::vector<int32_t> expert_counts;
  std::vector<int32_t> expert_offsets;
  std::vector<RowSource> sources;  // as many as DispatchVerifier::num_sources(); see RowsOf
  std::vector<RowRange> ranges;
  std::vector<int32_t> split_counts;
  std::vector<int32_t> source_offsets;
  std::vector<float> row_weights;
  std::vector<int32_t> row_index;
  std::vector<int32_t> recv_topk_idx;
  std::vector<float> recv_topk_weights;
};

// Checks what one rank received when every rank r sent inputs[r], piece by piece. The configuration
// and the inputs must outlive it.
class DispatchVerifier {
 public:
  DispatchVerifier(const EpConfig& config, absl::Span<const RankInput> inputs, int rank);

  // Return the numbers of elements of Received::sources, and of rows of Received::x: up to the last
  // one in use.
  size_t num_sources() const;
  size_t num_rows() const;
  // Returns those of the first `all` that are in use: all, unless rows lie apart.
  std::vector<RowRange> RowsOf(size_t all) const;
  const ReferenceReceived& reference() const { return reference_; }

  // With Slots::kAtomic the rows of one (expert, source) may be in any order. What the strategy
  // must provide may not be missing; what it provides beyond that is checked as well.
  void CheckLayout(const ReceivedLayout& layout);

  // Check rows first_row .. of the received x, whole rows that are in use, and their scales: all
  // bytes that have a meaning, those of NaNs among them. Call these after CheckLayout.
  void CheckRows(size_t first_row, absl::Span<const uint8_t> rows);
  void CheckScales(size_t first_row, absl::Span<const uint32_t> scales);

  const Verification& result() const { return result_; }

 private:
  void Wrong(absl::string_view what);
  void CheckArrays(const ReceivedLayout& layout);
  void CheckRanges(const ReceivedLayout& layout);
  void CheckSources(const ReceivedLayout& layout);
  // `required`: it is wrong if there is nothing of it.
  template <typename T>
  void CheckArray(absl::string_view name, const std::vector<T>& got, const std::vector<T>& want,
                  bool required);
  // Checks row `row`: it was received as `got` and should be `want`.
  template <typename T>
  void CheckRow(size_t row, absl::string_view what, absl::Span<const T> got,
                absl::Span<const T> want);

  const EpConfig& config_;
  const absl::Span<const RankInput> inputs_;
  const int rank_;
  const ReferenceReceived reference_;
  // Returns the row of x, and element of Received::sources, of the i-th row in expert order.
  size_t PlaceOf(size_t i) const;

  // The sources of rows of x: as delivered or, if rows are received once, the reference's. rank is
  // kPadding for zeros, kUnknown for an invalid source.
  std::vector<RowSource> row_sources_;
  Verification result_;
};

// What combine makes of the rows besides adding them.
struct CombineTerms {
  absl::Span<const float> expert_scale;  // [E] the factors of the experts' stand-ins
  absl::Span<const uint16_t> bias = {};  // [H]; empty: none
  // With several: the configuration and the factors are over all of them (CombineOrder::kPerNode).
  NodesOfRanks nodes = {};
};

// Checks one rank's y, piece by piece. The configuration, the input, which is what experts receive,
// and the terms must outlive it.
class CombineVerifier {
 public:
  CombineVerifier(const EpConfig& config, int num_ranks, int rank, const RankInput& input,
                  const CombineTerms& terms)
      : config_(config), num_ranks_(num_ranks), rank_(rank), input_(input), terms_(terms) {}

  // Checks whole rows of y ([H] each), from that of token `first_token` on. NaNs are equal.
  void CheckRows(size_t first_token, absl::Span<const uint16_t> y);

  const Verification& result() const { return result_; }

 private:
  void Wrong(size_t token, absl::Span<const uint16_t> got, absl::Span<const uint16_t> want);

  const EpConfig& config_;
  const int num_ranks_;
  const int rank_;
  const RankInput& input_;
  const CombineTerms& terms_;
  Verification result_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CHECK_VERIFY_H_
