// A second stream of a rank.
#ifndef OCTET_RUNTIME_GPU_SIDE_STREAM_H_
#define OCTET_RUNTIME_GPU_SIDE_STREAM_H_

#include <hip/hip_runtime.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"
#include "runtime/gpu/scoped_event.h"

namespace octet {

// For kernels that may run beside those of rank.stream(). Move-only; used on the rank's thread.
// Fork and Join may be captured with rank.stream(). Node knows nothing of this stream: whatever is
// enqueued on it, Join before returning to the caller.
class SideStream {
 public:
  SideStream() = default;
  SideStream(SideStream&& other) noexcept { *this = std::move(other); }
  SideStream& operator=(SideStream&& other) noexcept;
  // Must not be called inside Node::Run, since destroying a stream can wait for a device.
  ~SideStream();

  // On the current device; not while kernels wait for other ranks.
  static absl::StatusOr<SideStream> Create();

  hipStream_t stream() const { return stream_; }

  // Marks what rank.stream() has received so far as what the next Fork waits for.
  absl::Status MarkFork(const Rank& rank) { return fork_.Record(rank.stream()); }
  // Makes later work on stream() wait for the last mark.
  absl::Status Fork() const { return fork_.Hold(stream_); }
  // Makes later work on rank.stream() wait for what stream() has received so far.
  absl::Status Join(const Rank& rank);

  // Leaves the stream and its events undestroyed: they are still in use.
  void Abandon();

 private:
  hipStream_t stream_ = nullptr;
  ScopedEvent fork_;
  ScopedEvent join_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_GPU_SIDE_STREAM_H_
