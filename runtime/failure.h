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
// `phase` and `flag` are the client's words for record.site; a record without a peer says only
// "for token flag 17". kDeadlineExceeded. `waited`: DeviceTicks(record.waited_ticks).
absl::Status DeadlineStatus(int rank, absl::string_view phase, absl::string_view flag,
                            const device::FailureRecord& record, absl::Duration waited);

// The same code and payloads with another message.
absl::Status WithMessage(const absl::Status& status, absl::string_view message);

// The message up to its first line break.
absl::string_view FirstLine(const absl::Status& status);

// "10.0 s", "250 ms".
std::string WaitText(absl::Duration waited);

// Ticks of the GPUs' Clock() per second, as the host needs them for deadlines and traces.
uint64_t DeviceClockHz();

// A number of those ticks as a duration.
absl::Duration DeviceTicks(uint64_t ticks);

// The other way round: at least one tick for a duration above zero, and for one without end so many
// that they do not pass.
uint64_t DeviceTicksOf(absl::Duration duration);

}  // namespace octet

#endif  // OCTET_RUNTIME_FAILURE_H_
