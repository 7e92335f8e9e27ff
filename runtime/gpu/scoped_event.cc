#include "runtime/gpu/scoped_event.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/backoff.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

ScopedEvent::~ScopedEvent() {
  if (event_ != nullptr) static_cast<void>(hipEventDestroy(event_));
}

absl::StatusOr<ScopedEvent> ScopedEvent::Create() {
  ScopedEvent event;
  OCTET_RETURN_IF_GPU_ERROR(hipEventCreate(&event.event_));
  return event;
}

absl::Status ScopedEvent::Record(hipStream_t stream) {
  return OCTET_GPU(hipEventRecord(event_, stream));
}

absl::Status ScopedEvent::Hold(hipStream_t stream) const {
  return OCTET_GPU(hipStreamWaitEvent(stream, event_, 0));
}

absl::Status ScopedEvent::Wait(Rank& rank, absl::string_view what) const {
  const absl::Time deadline = absl::Now() + rank.node().timeout();
  Backoff backoff(Backoff::CoresFor(rank.num_ranks()));
  while (true) {
    const hipError_t error = hipEventQuery(event_);
    if (error == hipSuccess) return absl::OkStatus();
    if (error != hipErrorNotReady) return GpuStatus(error, "hipEventQuery");
    static_cast<void>(hipGetLastError());
    if (absl::Now() > deadline) {
      const absl::Duration waited = rank.node().timeout();
      return WithFailure({.kind = NodeFailure::Kind::kWait,
                          .rank = rank.rank(),
                          .waited = waited,
                          .phase = "wait for an event",
                          .flag = std::string(what)},
                         absl::DeadlineExceededError(absl::StrCat(what, " did not come within ",
                                                                  absl::FormatDuration(waited))));
    }
    backoff.Wait();
  }
}

absl::StatusOr<double> ScopedEvent::MicrosecondsSince(const ScopedEvent& start) const {
  constexpr double kMicrosPerMilli = 1e3;
  float millis = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipEventElapsedTime(&millis, start.event_, event_));
  return static_cast<double>(millis) * kMicrosPerMilli;
}

}  // namespace octet
