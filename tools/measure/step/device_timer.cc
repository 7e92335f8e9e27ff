#include "tools/measure/step/device_timer.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"
#include "tools/support/statistics.h"

namespace octet {

absl::StatusOr<DeviceTimer> DeviceTimer::Create(Domain& domain) {
  OCTET_ASSIGN_OR_RETURN(DomainBarrier barrier, DomainBarrier::Create(domain));
  DeviceTimer timer(domain, std::move(barrier));
  OCTET_RETURN_IF_ERROR(timer.Init());
  return timer;
}

absl::Status DeviceTimer::Init() {
  return domain_->Run([this](Rank& rank) -> absl::Status {
    Watch& watch = watches_[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(watch.start, ScopedEvent::Create());
    OCTET_ASSIGN_OR_RETURN(watch.stop, ScopedEvent::Create());
    return absl::OkStatus();
  });
}

absl::StatusOr<double> DeviceTimer::Time(absl::FunctionRef<absl::Status(Rank&)> enqueue) {
  OCTET_RETURN_IF_ERROR(domain_->Run([&](Rank& rank) -> absl::Status {
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
  OCTET_RETURN_IF_ERROR(domain_->Run([&](Rank& rank) -> absl::Status {
    Watch& watch = watches_[static_cast<size_t>(rank.rank())];
    OCTET_RETURN_IF_ERROR(prepare(rank));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));
    OCTET_RETURN_IF_ERROR(watch.start.Record(rank.stream()));
    OCTET_RETURN_IF_ERROR(enqueue(rank));
    OCTET_RETURN_IF_ERROR(watch.stop.Record(rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_ASSIGN_OR_RETURN(watch.us, watch.stop.MicrosecondsSince(watch.start));
    return absl::OkStatus();
  }));
  return Slowest();
}

absl::StatusOr<double> DeviceTimer::Slowest() const {
  double slowest = 0;
  for (const Watch& watch : watches_) slowest = std::max(slowest, watch.us);
  OCTET_ASSIGN_OR_RETURN(const std::vector<double> of_all, Largest(*domain_, {slowest}));
  return of_all.front();
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
