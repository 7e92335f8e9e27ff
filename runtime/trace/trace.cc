#include "octet/trace.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/clock.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/trace_event.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/node_memory.h"
#include "runtime/node/node_client.h"
#include "runtime/node/rank_threads.h"

namespace octet {
namespace {

static_assert(kNoTraceDetail == device::kNoPeer);
static_assert(sizeof(TraceSlice::more_details) == sizeof(device::TraceEvent::more));

constexpr uint32_t kClockRounds = 128;

// Converts ticks to nanoseconds, rounding down; exact if a tick is a whole number of nanoseconds.
int64_t Nanoseconds(uint64_t ticks) {
  constexpr uint64_t kGiga = 1'000'000'000;
  const uint64_t hz = DeviceClockHz();
  return static_cast<int64_t>(ticks / hz * kGiga + ticks % hz * kGiga / hz);
}

double NanosecondsOf(int64_t ticks) {
  return static_cast<double>(ticks) * 1e9 / static_cast<double>(DeviceClockHz());
}

// The node client of the clock kernels while they run.
class ClockClient : public NodeClient {
 public:
  absl::Status Describe(int rank, const device::FailureRecord& record) const override {
    return DeadlineStatus(RecordedFailure(rank, record, "clock ping-pong", "round"));
  }
  // The clocks are measured once, in memory of their own: there is nothing to reset.
  absl::Status Recover(Rank& /*rank*/) override { return absl::OkStatus(); }
};

// Rank 0 calls each other rank in turn; offsets[r] is rank r's clock minus rank 0's.
absl::StatusOr<std::vector<TraceCollector::ClockOffset>> MeasureClocks(Node& node) {
  const int num_ranks = node.num_ranks();
  std::vector<TraceCollector::ClockOffset> offsets(num_ranks);
  if (num_ranks == 1) return offsets;

  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<SymmetricHeap> heap,
                         SymmetricHeap::Create(node, kMaxRanks * sizeof(device::ClockMailbox) +
                                                         kMaxRanks * sizeof(device::ClockOffset) +
                                                         2 * SymmetricHeap::kAlignment));
  OCTET_ASSIGN_OR_RETURN(const auto mailboxes, heap->Allocate<device::ClockMailbox>(num_ranks));
  OCTET_ASSIGN_OR_RETURN(const auto results, heap->Allocate<device::ClockOffset>(num_ranks));

  ClockClient client;
  const uint32_t id = NodeClient::Register(node, &client);
  std::vector<device::ClockOffset> measured(num_ranks);
  const absl::Status status = node.Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_GPU_ERROR(device::LoadClockKernels());
    const device::PeerBases peers = heap->peers(rank.rank());
    // Rank b writes mailboxes[b] on rank a.
    const auto pair = [&](int peer) -> device::ClockPairParams {
      return {.mine = mailboxes.Mine(peers) + peer,
              .theirs = mailboxes.On(peers, peer) + rank.rank(),
              .result = results.Mine(peers) + peer,
              .port = NodeClient::PortOf(rank, id),
              .site = 0,
              .peer = peer,
              .rounds = kClockRounds};
    };
    return rank.CoordinatedLaunch([&]() -> absl::Status {
      if (rank.rank() != 0) {
        return OCTET_GPU(device::LaunchClockResponder(pair(0), rank.stream()));
      }
      for (int peer = 1; peer < num_ranks; ++peer) {
        OCTET_RETURN_IF_GPU_ERROR(device::LaunchClockCaller(pair(peer), rank.stream()));
      }
      return OCTET_GPU(hipMemcpyAsync(measured.data(), results.Mine(peers),
                                      num_ranks * sizeof(device::ClockOffset),
                                      hipMemcpyDeviceToHost, rank.stream()));
    });
  });
  NodeClient::Unregister(node, id);
  OCTET_RETURN_IF_ERROR(status);
  for (int rank = 1; rank < num_ranks; ++rank) {
    offsets[rank].offset_ns = NanosecondsOf(measured[rank].offset_ticks);
    offsets[rank].round_trip_ns =
        NanosecondsOf(static_cast<int64_t>(measured[rank].round_trip_ticks));
  }
  return offsets;
}

}  // namespace

class TraceCollector::Impl {
 public:
  Impl(const Node& node, int num_blocks, int events_per_track, int tracks)
      : shared_node_(node.Share()),
        node_(*shared_node_),
        memory_(node),
        num_blocks_(num_blocks),
        tracks_(tracks),
        capacity_(events_per_track),
        events_(node.num_ranks()),
        counts_(node.num_ranks()) {}

  absl::Status Allocate();
  absl::Status MeasureOffsets();
  absl::Status Clear();
  absl::StatusOr<std::vector<TraceSlice>> Collect();
  device::TraceBuffer buffer(int rank) const;

  int num_ranks() const { return node_.num_ranks(); }
  int tracks() const { return tracks_; }
  uint64_t num_dropped() const { return num_dropped_; }
  absl::Span<const ClockOffset> offsets() const { return offsets_; }

 private:
  // The events that one rank has recorded.
  struct Recorded {
    // [tracks][num_blocks], exceeds the capacity if events were dropped.
    std::vector<uint32_t> counts;
    std::vector<device::TraceEvent> events;  // [tracks][num_blocks][capacity]
  };
  absl::Status Read(Rank& rank, Recorded* recorded) const;
  size_t num_rows() const { return static_cast<size_t>(tracks_) * num_blocks_; }
  size_t num_events() const { return num_rows() * capacity_; }

  const std::shared_ptr<Node> shared_node_;
  Node& node_;
  NodeMemory memory_;
  const int num_blocks_;
  const int tracks_;
  const int capacity_;
  std::vector<absl::Span<device::TraceEvent>> events_;  // by rank
  std::vector<absl::Span<uint32_t>> counts_;
  std::vector<ClockOffset> offsets_;
  uint64_t num_dropped_ = 0;
};

absl::Status TraceCollector::Impl::Allocate() {
  return node_.Run([this](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(events_[rank.rank()], memory_.Device<device::TraceEvent>(num_events()));
    OCTET_ASSIGN_OR_RETURN(counts_[rank.rank()], memory_.Device<uint32_t>(num_rows()));
    return absl::OkStatus();
  });
}

absl::Status TraceCollector::Impl::MeasureOffsets() {
  OCTET_ASSIGN_OR_RETURN(offsets_, MeasureClocks(node_));
  return absl::OkStatus();
}

absl::Status TraceCollector::Impl::Clear() {
  return node_.Run([this](Rank& rank) -> absl::Status {
    const absl::Span<uint32_t> counts = counts_[rank.rank()];
    return OCTET_GPU(
        hipMemsetAsync(counts.data(), 0, counts.size() * sizeof(uint32_t), rank.stream()));
  });
}

device::TraceBuffer TraceCollector::Impl::buffer(int rank) const {
  return {.events = events_[rank].data(),
          .counts = counts_[rank].data(),
          .num_blocks = static_cast<uint32_t>(num_blocks_),
          .capacity = static_cast<uint32_t>(capacity_)};
}

absl::Status TraceCollector::Impl::Read(Rank& rank, Recorded* recorded) const {
  const device::TraceBuffer from = buffer(rank.rank());
  recorded->counts.resize(num_rows());
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(recorded->counts.data(), from.counts,
                                           num_rows() * sizeof(uint32_t), hipMemcpyDeviceToHost,
                                           rank.stream()));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  recorded->events.resize(num_events());
  // Copies only what was written: most blocks record few events.
  for (size_t row = 0; row < num_rows(); ++row) {
    const size_t first = row * capacity_;
    const size_t kept = std::min<size_t>(recorded->counts[row], capacity_);
    if (kept == 0) continue;
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(&recorded->events[first], from.events + first,
                                             kept * sizeof(device::TraceEvent),
                                             hipMemcpyDeviceToHost, rank.stream()));
  }
  return rank.Synchronize();
}

absl::StatusOr<std::vector<TraceSlice>> TraceCollector::Impl::Collect() {
  std::vector<Recorded> recorded(node_.num_ranks());
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) { return Read(rank, &recorded[rank.rank()]); }));

  // Keeps whole nanoseconds until the end, so that slices nest here as they do on the GPU.
  struct Event {
    int rank;
    int block;
    int track;
    int64_t start;
    int64_t stop;
    const device::TraceEvent* recorded;
  };
  std::vector<Event> events;
  num_dropped_ = 0;
  for (int rank = 0; rank < node_.num_ranks(); ++rank) {
    const int64_t offset = std::llround(offsets_[rank].offset_ns);
    for (size_t row = 0; row < num_rows(); ++row) {
      const uint32_t count = recorded[rank].counts[row];
      const uint32_t kept = std::min(count, static_cast<uint32_t>(capacity_));
      num_dropped_ += count - kept;
      const int block = static_cast<int>(row) % num_blocks_;
      const int track = static_cast<int>(row) / num_blocks_;
      const device::TraceEvent* first = recorded[rank].events.data() + row * capacity_;
      for (const device::TraceEvent* e = first; e != first + kept; ++e) {
        events.push_back(
            {rank, block, track, Nanoseconds(e->start) - offset, Nanoseconds(e->stop) - offset, e});
      }
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.rank, a.block, a.track, a.start, -a.stop) <
           std::tuple(b.rank, b.block, b.track, b.start, -b.stop);
  });

  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const Event& event : events) earliest = std::min(earliest, event.start);
  std::vector<TraceSlice> slices;
  slices.reserve(events.size());
  for (const Event& event : events) {
    slices.push_back({.rank = event.rank,
                      .block = event.block,
                      .track = event.track,
                      .tag = event.recorded->tag,
                      .detail = event.recorded->detail,
                      .more_details = std::to_array(event.recorded->more),
                      .start_us = static_cast<double>(event.start - earliest) / 1e3,
                      .duration_us = static_cast<double>(event.stop - event.start) / 1e3});
  }
  return slices;
}

TraceCollector::TraceCollector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceCollector::~TraceCollector() = default;

absl::StatusOr<std::unique_ptr<TraceCollector>> TraceCollector::Create(Node& node, int num_blocks,
                                                                       int events_per_track,
                                                                       int tracks) {
  if (num_blocks < 1 || events_per_track < 1 || tracks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a trace of ", num_blocks, " blocks with ",
                                                   tracks, " tracks of ", events_per_track,
                                                   " events each: all must be at least 1"));
  }
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("TraceCollector::Create"));
  auto impl = std::make_unique<Impl>(node, num_blocks, events_per_track, tracks);
  OCTET_RETURN_IF_ERROR(impl->Allocate());
  OCTET_RETURN_IF_ERROR(impl->Clear());
  OCTET_RETURN_IF_ERROR(impl->MeasureOffsets());
  return std::unique_ptr<TraceCollector>(new TraceCollector(std::move(impl)));
}

device::TraceBuffer TraceCollector::buffer(int rank) const { return impl_->buffer(rank); }
absl::Status TraceCollector::Clear() {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("TraceCollector::Clear"));
  return impl_->Clear();
}
absl::StatusOr<std::vector<TraceSlice>> TraceCollector::Collect() const {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("TraceCollector::Collect"));
  return impl_->Collect();
}
int TraceCollector::num_ranks() const { return impl_->num_ranks(); }
int TraceCollector::tracks() const { return impl_->tracks(); }
uint64_t TraceCollector::num_dropped() const { return impl_->num_dropped(); }
absl::Span<const TraceCollector::ClockOffset> TraceCollector::clock_offsets() const {
  return impl_->offsets();
}

}  // namespace octet
