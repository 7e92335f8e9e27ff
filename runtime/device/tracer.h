// Records events inside kernels. A kernel that can be traced is a template on its tracer: Tracer
// records, NoTracer compiles to nothing. On a track of a block one thread records, so that the
// slices of a track nest: by default the first lane of the block's first wave, on track 0.
#ifndef OCTET_RUNTIME_DEVICE_TRACER_H_
#define OCTET_RUNTIME_DEVICE_TRACER_H_

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/trace_event.h"

namespace octet::device {

class NoTracer {
 public:
  static constexpr bool kRecords = false;
  __device__ explicit NoTracer(const TraceBuffer&, int = 0) {}
  __device__ uint64_t Start() const { return 0; }
  __device__ void Stop(uint64_t, uint32_t, uint32_t = 0) const {}
};

// At most one per track of a block at a time: it alone counts the track's events, so that recording
// an event costs two clock reads and a few stores that nothing waits for.
class Tracer {
 public:
  static constexpr bool kRecords = true;
  __device__ __forceinline__ explicit Tracer(const TraceBuffer& buffer, int wave = 0)
      : Tracer(buffer, 0, Wave() == wave && Lane() == 0) {}
  // `on`: this thread is the one that records. The buffer must have the track.
  __device__ __forceinline__ Tracer(const TraceBuffer& buffer, uint32_t track, bool on)
      : buffer_(buffer),
        on_(on && blockIdx.x < buffer.num_blocks),
        track_(track),
        count_(on_ ? buffer.counts[Row()] : 0) {}
  __device__ __forceinline__ uint64_t Start() const { return on_ ? Clock() : 0; }
  __device__ __forceinline__ void Stop(uint64_t start, uint32_t tag, uint32_t detail = 0) const {
    Record(start, Start(), tag, detail);
  }
  // `more`: the details beside the first.
  template <typename... More>
  __device__ __forceinline__ void Record(uint64_t start, uint64_t stop, uint32_t tag,
                                         uint32_t detail, More... more) const {
    static_assert(sizeof...(more) <= kMoreTraceDetails);
    if (!on_) return;
    const uint32_t i = count_++;
    buffer_.counts[Row()] = count_;
    if (i >= buffer_.capacity) return;
    TraceEvent& event = buffer_.events[static_cast<uint64_t>(Row()) * buffer_.capacity + i];
    event.start = start;
    event.stop = stop;
    event.tag = tag;
    event.detail = detail;
    [[maybe_unused]] uint32_t* next = event.more;
    ((*next++ = static_cast<uint32_t>(more)), ...);
  }

 private:
  // Of the buffer. Computed again each time: it would take a register.
  __device__ __forceinline__ uint32_t Row() const {
    return track_ * buffer_.num_blocks + blockIdx.x;
  }

  TraceBuffer buffer_;
  bool on_;
  uint32_t track_;
  mutable uint32_t count_;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_TRACER_H_
