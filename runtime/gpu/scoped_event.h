// An owned HIP event.
#ifndef OCTET_RUNTIME_GPU_SCOPED_EVENT_H_
#define OCTET_RUNTIME_GPU_SCOPED_EVENT_H_

#include <hip/hip_runtime.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"

namespace octet {

// Move-only. Belongs to the device that was current at its creation.
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
  // Leaves the event undestroyed.
  void Abandon() { event_ = nullptr; }

  absl::Status Record(hipStream_t stream);
  // Makes work enqueued on `stream` from now on start after the last Record.
  absl::Status Hold(hipStream_t stream) const;
  // Polls on the host until the event is done. kDeadlineExceeded, naming `what`, after the node's
  // timeout.
  absl::Status Wait(Rank& rank, absl::string_view what) const;
  // Returns the time from `start` to this event. Both must be done.
  absl::StatusOr<double> MicrosecondsSince(const ScopedEvent& start) const;

 private:
  hipEvent_t event_ = nullptr;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_GPU_SCOPED_EVENT_H_
