// A HIP event with an owner.
#ifndef OCTET_RUNTIME_SCOPED_EVENT_H_
#define OCTET_RUNTIME_SCOPED_EVENT_H_

#include <hip/hip_runtime.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"

namespace octet {

// Move-only. Belongs to the device that was current when it was made.
class ScopedEvent {
 public:
  ScopedEvent() = default;
  ScopedEvent(ScopedEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  ScopedEvent& operator=(ScopedEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~ScopedEvent();

  static absl::StatusOr<ScopedEvent> Create();

  absl::Status Record(hipStream_t stream);
  // What `stream` gets from now on starts after the last Record.
  absl::Status Hold(hipStream_t stream) const;
  // Waits on the host, polling. kDeadlineExceeded, naming `what`, after the node's timeout.
  absl::Status Wait(Rank& rank, absl::string_view what) const;
  // From `start` to this one, when both are done.
  absl::StatusOr<double> MicrosecondsSince(const ScopedEvent& start) const;

 private:
  hipEvent_t event_ = nullptr;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_SCOPED_EVENT_H_
