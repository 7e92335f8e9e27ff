// Events recorded inside kernels (tracer.h) and written as one Perfetto file (octet/trace.h).
// Plain records, shared by host and device.
#ifndef OCTET_RUNTIME_DEVICE_TRACE_EVENT_H_
#define OCTET_RUNTIME_DEVICE_TRACE_EVENT_H_

#include <cstdint>

namespace octet::device {

// The detail of a wait that has no particular peer, or was over when it began.
inline constexpr uint32_t kNoPeer = ~0U;

// The most details of an event beside the first (TraceTag::more_details).
inline constexpr int kMoreTraceDetails = 3;

struct TraceEvent {
  uint64_t start;  // ticks of this GPU's Clock()
  uint64_t stop;
  uint32_t tag;                      // index into the tags that the host knows (TraceTag)
  uint32_t detail;                   // a number for the reader: a peer, a row, a token
  uint32_t more[kMoreTraceDetails];  // likewise; those that the tag does not name are not written
};

// This GPU's event memory: `capacity` events for each track of each of `num_blocks` blocks. Events
// beyond the capacity are counted but not kept. Blocks beyond num_blocks do not record.
struct TraceBuffer {
  TraceEvent* events;  // [tracks][num_blocks][capacity]
  uint32_t* counts;    // [tracks][num_blocks]
  uint32_t num_blocks;
  uint32_t capacity;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_TRACE_EVENT_H_
