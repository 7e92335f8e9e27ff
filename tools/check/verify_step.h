// Checks the contents of one rank's GPU memory after a step against the reference.
#ifndef OCTET_TOOLS_CHECK_VERIFY_STEP_H_
#define OCTET_TOOLS_CHECK_VERIFY_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/reference.h"
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

// Reads as many rows as `rank` must have received when every rank r has dispatched inputs[r],
// whatever their contents.
absl::Status ReadReceived(HostReader& reader, const EpConfig& config,
                          absl::Span<const RankInput> inputs, int rank, const Received& received,
                          ReceivedRows& rows);

// Verifies what `rank` has received when every rank r has dispatched inputs[r]: all fields of
// Received, the rows and their scales. Adds to `verification`.
absl::Status VerifyReceived(HostReader& reader, const EpConfig& config,
                            absl::Span<const RankInput> inputs, int rank, const Received& received,
                            Verification& verification);

// Verifies the rank's y, [T][H] on its GPU.
absl::Status VerifyY(HostReader& reader, const EpConfig& config, absl::Span<const RankInput> inputs,
                     int rank, const void* y, absl::Span<const float> expert_scale,
                     Verification& verification);

}  // namespace octet

#endif  // OCTET_TOOLS_CHECK_VERIFY_STEP_H_
