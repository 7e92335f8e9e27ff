// Events recorded inside the kernels of all GPUs, written as one Chrome/Perfetto JSON file.
#ifndef OCTET_TRACE_H_
#define OCTET_TRACE_H_

#include <array>
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

// The detail of an event that has none: TraceJson omits it.
inline constexpr uint32_t kNoTraceDetail = ~uint32_t{0};

// The call, and the half of it, that events belong to.
enum class TraceCall : uint8_t { kOther, kDispatch, kCombine };
enum class TraceHalf : uint8_t { kOther, kSend, kReceive };

// A part of the work of a call.
struct TracePhase {
  absl::string_view name = {};  // may be empty
  TraceCall call = TraceCall::kOther;
  TraceHalf half = TraceHalf::kOther;

  bool operator==(const TracePhase& other) const = default;
};

// What the detail of an event means.
struct TraceDetail {
  absl::string_view name = "detail";
  bool is_peer = false;  // it is a rank, or kNoTraceDetail
};
inline constexpr TraceDetail kTracePeer = {.name = "peer", .is_peer = true};

// Describes the events of one tag. The strings must outlive their uses.
struct TraceTag {
  absl::string_view name = {};
  TracePhase phase = {};
  TraceDetail detail = {};
  bool waits = false;  // the event is a wait: for the peer, if known
  std::array<absl::string_view, 3> more_details = {};  // names of further details; empty: none
};

// One event on the time line shared by all ranks.
struct TraceSlice {
  int rank = 0;
  int block = 0;
  int track = 0;  // of the block
  uint32_t tag = 0;
  uint32_t detail = 0;
  std::array<uint32_t, 3> more_details = {};  // those that the tag does not name mean nothing
  double start_us = 0;                        // since the earliest event, on rank 0's clock
  double duration_us = 0;
};

// Event memory on every GPU, and the offsets between the GPUs' clocks. The node may be destroyed
// first; Clear and Collect then return kFailedPrecondition.
class TraceCollector {
 public:
  // Allocates `events_per_track` events for each of `tracks` tracks of each of `num_blocks` blocks
  // on every rank. A block records on several tracks where its waves do different work at the same
  // time. Measures the clock offsets by ping-pong between rank 0 and each other rank. Must not be
  // called during Run.
  static absl::StatusOr<std::unique_ptr<TraceCollector>> Create(Node& node, int num_blocks,
                                                                int events_per_track,
                                                                int tracks = 1);
  ~TraceCollector();
  TraceCollector(const TraceCollector&) = delete;
  TraceCollector& operator=(const TraceCollector&) = delete;

  // For the parameters of kernels of `rank` that record events.
  device::TraceBuffer buffer(int rank) const;

  // Discards all events. Streams must be idle; must not be called during Run.
  absl::Status Clear();

  // Returns all events so far, ordered by (rank, block, track, start), an outer slice before the
  // inner ones that start with it. Streams must be idle; must not be called during Run.
  absl::StatusOr<std::vector<TraceSlice>> Collect() const;

  int num_ranks() const;
  int tracks() const;  // of every block

  // The number of events on all ranks that did not fit into their track's memory, as of the last
  // Collect.
  uint64_t num_dropped() const;

  // Rank r's clock minus rank 0's, in nanoseconds. The error is at most half of the measured round
  // trip.
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

// The names of what has slices in a file. Each may be shorter than what it names.
struct TraceNames {
  absl::Span<const std::string> gpus = {};          // by rank
  absl::Span<const absl::string_view> tracks = {};  // of every block
};

// Returns the slices as Chrome trace JSON: pid = rank, complete ("X") slices in µs with three
// decimals. tid = block · T + track, where T is the number of named tracks or that of the tracks
// that have slices, whichever is more. A slice is named by its tag ("tag 7" if `tags` does not have
// it), its category is the phase's name, and args holds the details under their names, except for a
// peer that is kNoTraceDetail.
// Processes and threads that have slices are named "rank r (GPU)" and "block b", or "block b
// (track)". Perfetto accepts the slices in any order.
std::string TraceJson(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                      const TraceNames& names = {});

}  // namespace octet

#endif  // OCTET_TRACE_H_
