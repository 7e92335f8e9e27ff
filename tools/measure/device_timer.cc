#include "tools/measure/device_timer.h"

#include <algorithm>
#include <utility>

#include "runtime/status_macros.h"
#include "tools/measure/statistics.h"

namespace octet {

absl::StatusOr<DeviceTimer> DeviceTimer::Create(Node& node) {
  DeviceTimer timer(node);
  OCTET_RETURN_IF_ERROR(node.Run([&timer](Rank& rank) -> absl::Status {
    Watch& watch = timer.watches_[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(watch.start, ScopedEvent::Create());
    OCTET_ASSIGN_OR_RETURN(watch.stop, ScopedEvent::Create());
    return absl::OkStatus();
  }));
  return timer;
}

absl::StatusOr<double> DeviceTimer::Time(absl::FunctionRef<absl::Status(Rank&)> enqueue) {
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    Watch& watch = watches_[static_cast<size_t>(rank.rank())];
    OCTET_RETURN_IF_ERROR(rank.CoordinatedLaunch([&]() -> absl::Status {
      OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
      OCTET_RETURN_IF_ERROR(watch.start.Record(rank.stream()));
      OCTET_RETURN_IF_ERROR(enqueue(rank));
      return watch.stop.Record(rank.stream());
    }));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_ASSIGN_OR_RETURN(watch.us, watch.stop.MicrosecondsSince(watch.start));
    return absl::OkStatus();
  }));
  return Slowest();
}

absl::StatusOr<double> DeviceTimer::TimeFromHost(absl::FunctionRef<absl::Status(Rank&)> prepare,
                                                 absl::FunctionRef<absl::Status(Rank&)> enqueue) {
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    Watch& watch = watches_[static_cast<size_t>(rank.rank())];
    OCTET_RETURN_IF_ERROR(prepare(rank));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    OCTET_RETURN_IF_ERROR(watch.start.Record(rank.stream()));
    OCTET_RETURN_IF_ERROR(enqueue(rank));
    OCTET_RETURN_IF_ERROR(watch.stop.Record(rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_ASSIGN_OR_RETURN(watch.us, watch.stop.MicrosecondsSince(watch.start));
    return absl::OkStatus();
  }));
  return Slowest();
}

double DeviceTimer::Slowest() const {
  double slowest = 0;
  for (const Watch& watch : watches_) slowest = std::max(slowest, watch.us);
  return slowest;
}

absl::StatusOr<double> DeviceTimer::MedianTime(int repetitions,
                                               absl::FunctionRef<absl::Status(Rank&)> enqueue) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    OCTET_ASSIGN_OR_RETURN(const double us, Time(enqueue));
    times.push_back(us);
  }
  return Summarize(std::move(times)).median;
}

}  // namespace octet
