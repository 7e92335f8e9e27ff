// Records events inside kernels. A kernel that can be traced is a template on its tracer: Tracer
// records, NoTracer compiles to nothing. One wave of each block records, by default the first, so
// that the slices of a block nest.
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

// At most one per block at a time: it alone counts the block's events, so that recording an event
// costs two clock reads and a few stores that nothing waits for.
class Tracer {
 public:
  static constexpr bool kRecords = true;
  __device__ explicit Tracer(const TraceBuffer& buffer, int wave = 0)
      : buffer_(buffer),
        on_(Wave() == wave && Lane() == 0 && blockIdx.x < buffer.num_blocks),
        count_(on_ ? buffer.counts[blockIdx.x] : 0) {}
  __device__ uint64_t Start() const { return on_ ? Clock() : 0; }
  __device__ void Stop(uint64_t start, uint32_t tag, uint32_t detail = 0) const {
    if (!on_) return;
    const uint32_t i = count_++;
    buffer_.counts[blockIdx.x] = count_;
    if (i >= buffer_.capacity) return;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * buffer_.capacity;
    buffer_.events[first + i] = TraceEvent{start, Clock(), tag, detail};
  }

 private:
  TraceBuffer buffer_;
  bool on_;
  mutable uint32_t count_;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_TRACER_H_
