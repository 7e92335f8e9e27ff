// Checks the contents of one rank's GPU memory after a step against the reference.
#ifndef OCTET_TOOLS_CHECK_VERIFY_STEP_H_
#define OCTET_TOOLS_CHECK_VERIFY_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/oracle/reference.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "tools/check/host_reader.h"
#include "tools/check/verify.h"

namespace octet {

// One rank's received rows and their description in Received, in host memory. If rows lie apart,
// only those in `layout.ranges`, one after the other: `places` has their numbers in Received::x,
// and layout.sources is as long and in the same order.
struct ReceivedRows {
  ReceivedLayout layout;
  std::vector<uint8_t> x;  // rows of Received::row_bytes
  std::vector<uint32_t> scales;
  std::vector<int32_t> places;
};

// The contents of a rank's GPU memory after a step.
struct RankOutput {
  std::vector<uint16_t> y;  // [T][H]
  ReceivedRows received;
};

// Returns the bytes of the largest row that a StepVerifier reads: the least that the staging memory
// of its HostReader must hold.
size_t LargestRow(const EpConfig& config);

// Checks what one rank has received when every rank r has sent inputs[r], and its y. Everything
// that the constructor is given must outlive it.
class StepVerifier {
 public:
  StepVerifier(HostReader& reader, const EpConfig& config, absl::Span<const RankInput> inputs,
               int rank)
      : reader_(reader), config_(config), inputs_(inputs), rank_(rank) {}

  // Reads as many rows as the rank must have received, whatever their contents.
  absl::Status Read(const Received& received, ReceivedRows& rows);

  // Checks all fields of Received, the rows and their scales. Adds to `verification`.
  absl::Status CheckReceived(const Received& received, Verification& verification);

  // Checks y, [T][H] on the rank's GPU. `input`: what experts receive of the rank's tokens. Adds to
  // `verification`.
  absl::Status CheckY(const void* y, const RankInput& input, const CombineTerms& terms,
                      Verification& verification);

 private:
  HostReader& reader_;
  const EpConfig& config_;
  const absl::Span<const RankInput> inputs_;
  const int rank_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CHECK_VERIFY_STEP_H_
