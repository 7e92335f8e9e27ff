// What a step must have delivered, against the serial reference.
#ifndef OCTET_TOOLS_VERIFY_H_
#define OCTET_TOOLS_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep_config.h"
#include "kernels/reference.h"

namespace octet {

// Of one rank, or of several added up.
struct Verification {
  bool bitwise = true;           // everything is the reference's to the bit
  bool within_tolerance = true;  // |y - ref| <= 5e-3 + 1e-2 · |ref|, the challenge's rule
  double max_error = 0;          // greatest |y - ref|; infinite where only one of them is a number
  int64_t wrong_rows = 0;        // received rows, or what is said about them
  int64_t wrong_tokens = 0;      // rows of y
  std::string first;             // the first difference in words; empty if there is none

  void Add(const Verification& other);
};

// Checks what one rank received, piece by piece. The inputs must outlive it.
class DispatchVerifier {
 public:
  DispatchVerifier(const EpConfig& config, absl::Span<const RankInput> inputs, int rank);

  size_t num_rows() const { return reference_.sources.size(); }

  // expert_counts [L], expert_offsets [L + 1] and sources [num_rows()]. With Slots::kAtomic the
  // rows of one (expert, source) may come in any order.
  void CheckLayout(absl::Span<const int32_t> expert_counts,
                   absl::Span<const int32_t> expert_offsets, absl::Span<const RowSource> sources);

  // Rows first_row .. of the received x, whole rows, after CheckLayout.
  void CheckRows(size_t first_row, absl::Span<const uint16_t> rows);

  const Verification& result() const { return result_; }

 private:
  void Wrong(absl::string_view what);

  const EpConfig& config_;
  const absl::Span<const RankInput> inputs_;
  const int rank_;
  const ReferenceReceived reference_;
  std::vector<RowSource> sources_;  // as delivered; rank is -1 where it makes no sense
  Verification result_;
};

// Checks rows of y of one rank: those of its tokens first_token .., which `input` has. `y` is
// [T][H], expert_scale [E].
Verification VerifyCombine(const EpConfig& config, int num_ranks, const RankInput& input, int rank,
                           int first_token, absl::Span<const float> expert_scale,
                           absl::Span<const uint16_t> y);

}  // namespace octet

#endif  // OCTET_TOOLS_VERIFY_H_
