// Turns failures into Statuses: the only place that words them.
#ifndef OCTET_RUNTIME_FAILURE_FAILURE_H_
#define OCTET_RUNTIME_FAILURE_FAILURE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "octet/node_failure.h"
#include "runtime/device/failure_record.h"

namespace octet {

// Returns the failure that a kernel of `rank` has recorded. `phase` and `flag` are the client's
// words for record.site.
NodeFailure RecordedFailure(int rank, const device::FailureRecord& record, absl::string_view phase,
                            absl::string_view flag);

// Returns kDeadlineExceeded for an expired wait on a GPU:
//   "rank 3: dispatch-receive waited 10.0 s for rank 5's token flag 17: expected epoch 42, seen 41"
// Without a peer the text says only "for token flag 17".
absl::Status DeadlineStatus(const NodeFailure& failure);

// Returns `status` (not OK) with "rank r: " before its message, r being failure.rank; FailureOf the
// result is `failure`.
absl::Status WithFailure(const NodeFailure& failure, const absl::Status& status);

// Returns `status` with the name of the object whose call has failed, "rank 3: 'layer 7': ...". As
// it is, if the name is empty or the status reports no failure.
absl::Status WithObject(const absl::Status& status, absl::string_view name);

// The rank of a failure that none of the node's ranks has caused.
inline constexpr int kNoRank = -1;

// Returns WithFailure of an error of `rank`. A status that is OK, that is of kNoRank, or that
// already reports a failure, perhaps of another rank, is returned as it is.
absl::Status WithRank(int rank, const absl::Status& status);

// Marks `status` as that of a node that has died or been stopped; copies and WithMessage keep it.
absl::Status WithLostNode(absl::Status status);
// Returns whether `status` is the effect of a node that is lost: later calls fail because of it.
bool IsLostNode(const absl::Status& status);

// Returns `status` with another message and the same code and payloads. The result shares no memory
// with `status`.
absl::Status WithMessage(const absl::Status& status, absl::string_view message);

// Returns the message up to its first line break.
absl::string_view FirstLine(const absl::Status& status);

// Formats a duration: "10.0 s", "250 ms".
std::string WaitText(absl::Duration waited);

// Returns the ticks per second of the GPUs' Clock(), for deadlines and traces.
uint64_t DeviceClockHz();

// Converts ticks to a duration.
absl::Duration DeviceTicks(uint64_t ticks);

// Converts a duration to ticks: at least one tick for a duration above zero; for an infinite one,
// so many that they never pass.
uint64_t DeviceTicksOf(absl::Duration duration);

}  // namespace octet

#endif  // OCTET_RUNTIME_FAILURE_FAILURE_H_
