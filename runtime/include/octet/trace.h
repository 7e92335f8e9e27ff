// Events recorded inside the kernels of all GPUs, as one Chrome/Perfetto JSON file.
#ifndef OCTET_TRACE_H_
#define OCTET_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/node.h"

namespace octet {

namespace device {
struct TraceBuffer;  // runtime/device/trace_event.h
}  // namespace device

// The detail of an event that is no number: TraceJson leaves it out.
inline constexpr uint32_t kNoTraceDetail = ~uint32_t{0};
// The name of a detail that is the number of a rank, or kNoTraceDetail.
inline constexpr absl::string_view kTracePeer = "peer";

// What the events of one tag are. Strings must live as long as they are used.
struct TraceTag {
  absl::string_view name = {};
  absl::string_view phase = {};         // what the tag is a part of; may be empty
  absl::string_view detail = "detail";  // what the number is
  bool waits = false;                   // the time is spent waiting: for the peer, if that is known
};

// One event on the common time line.
struct TraceSlice {
  int rank = 0;
  int block = 0;
  uint32_t tag = 0;
  uint32_t detail = 0;
  double start_us = 0;  // since the earliest event, on rank 0's clock
  double duration_us = 0;
};

// Event memory on every GPU, and the offsets between the GPUs' clocks. The node may be destroyed
// first; Clear and Collect are then refused (kFailedPrecondition).
class TraceCollector {
 public:
  // Room for `events_per_block` events in each of `num_blocks` blocks, on every rank. Measures the
  // clock offsets by ping-pong between rank 0 and each other rank. Not during Run.
  static absl::StatusOr<std::unique_ptr<TraceCollector>> Create(Node& node, int num_blocks,
                                                                int events_per_block);
  ~TraceCollector();
  TraceCollector(const TraceCollector&) = delete;
  TraceCollector& operator=(const TraceCollector&) = delete;

  // For the parameters of kernels of `rank` that record events.
  device::TraceBuffer buffer(int rank) const;

  // Forgets all events. Streams must be idle; not during Run.
  absl::Status Clear();

  // All events so far, ordered by (rank, block, start), an outer slice before the inner ones that
  // start with it. Streams must be idle; not during Run.
  absl::StatusOr<std::vector<TraceSlice>> Collect() const;

  // Events that did not fit into their block's memory, over all ranks, as of the last Collect.
  uint64_t num_dropped() const;

  // Rank r's clock minus rank 0's, in nanoseconds, and the measured round trip that bounds the
  // error to half of it.
  struct ClockOffset {
    double offset_ns = 0;
    double round_trip_ns = 0;
  };
  absl::Span<const ClockOffset> clock_offsets() const;

 private:
  class Impl;
  explicit TraceCollector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The slices as Chrome trace JSON: pid = rank, tid = block, complete ("X") slices in µs with three
// decimals, named by tag ("tag 7" where there is none), the phase as their category, with the
// detail by its name in args, unless it is kNoTraceDetail. Processes are named "rank r (GPU)" and
// threads "block b", those that have slices. `gpu_names` by rank, may be shorter. Perfetto does not
// need the slices in any order.
std::string TraceJson(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                      absl::Span<const std::string> gpu_names = {});

}  // namespace octet

#endif  // OCTET_TRACE_H_
