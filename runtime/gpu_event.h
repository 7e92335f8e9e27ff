// A HIP event with an owner.
#ifndef OCTET_RUNTIME_GPU_EVENT_H_
#define OCTET_RUNTIME_GPU_EVENT_H_

#include <hip/hip_runtime.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/node.h"

namespace octet {

// Move-only. Belongs to the device that was current when it was made.
class GpuEvent {
 public:
  GpuEvent() = default;
  GpuEvent(GpuEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  GpuEvent& operator=(GpuEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~GpuEvent();

  static absl::StatusOr<GpuEvent> Create();

  absl::Status Record(hipStream_t stream);
  // What `stream` gets from now on starts after the last Record.
  absl::Status Hold(hipStream_t stream) const;
  // Waits on the host, polling. kDeadlineExceeded, naming `what`, after the node's timeout.
  absl::Status Wait(Rank& rank, absl::string_view what) const;
  // From `start` to this one, when both are done.
  absl::StatusOr<double> MicrosecondsSince(const GpuEvent& start) const;

 private:
  hipEvent_t event_ = nullptr;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_GPU_EVENT_H_
