// Failure records of all ranks, decoded.
#ifndef OCTET_RUNTIME_FAILURE_H_
#define OCTET_RUNTIME_FAILURE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/device/failure_record.h"

namespace octet {

// The sentence for an expired wait:
//   "rank 3: dispatch-receive waited 10.0 s for rank 5's token flag 17: expected epoch 42, seen 41"
// `phase` and `flag` are the client's words for record.site. kDeadlineExceeded.
absl::Status DeadlineStatus(int rank, absl::string_view phase, absl::string_view flag,
                            const device::FailureRecord& record, absl::Duration waited);

// Ticks of the GPUs' Clock() per second, as the host needs them for deadlines and traces.
uint64_t DeviceClockHz();

}  // namespace octet

#endif  // OCTET_RUNTIME_FAILURE_H_
