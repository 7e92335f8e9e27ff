// Checks a step's results against the serial reference.
#ifndef OCTET_TOOLS_CHECK_VERIFY_H_
#define OCTET_TOOLS_CHECK_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/reference.h"
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
};

// The description of received rows, in host memory: as in Received. Empty: the configuration has no
// such thing, or the strategy does not provide it.
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

// Checks what one rank received, piece by piece. The inputs must outlive it.
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

  // With Slots::kAtomic the rows of one (expert, source) may be in any order.
  void CheckLayout(const ReceivedLayout& layout);

  // Check rows first_row .. of the received x, whole rows that are in use, and their scales. Call
  // these after CheckLayout.
  void CheckRows(size_t first_row, absl::Span<const uint8_t> rows);
  void CheckScales(size_t first_row, absl::Span<const uint32_t> scales);

  const Verification& result() const { return result_; }

 private:
  void Wrong(absl::string_view what);
  void CheckRanges(const ReceivedLayout& layout);
  template <typename T>
  void CheckArray(absl::string_view name, const std::vector<T>& got, const std::vector<T>& want);
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

// Checks rows of y of one rank: those of its tokens first_token .., which `input` holds. `y` is
// [T][H], expert_scale [E].
Verification VerifyCombine(const EpConfig& config, int num_ranks, const RankInput& input, int rank,
                           int first_token, absl::Span<const float> expert_scale,
                           absl::Span<const uint16_t> y);

}  // namespace octet

#endif  // OCTET_TOOLS_CHECK_VERIFY_H_
