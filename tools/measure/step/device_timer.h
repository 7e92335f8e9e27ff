// Measures the device time of work that all GPUs do together.
#ifndef OCTET_TOOLS_MEASURE_STEP_DEVICE_TIMER_H_
#define OCTET_TOOLS_MEASURE_STEP_DEVICE_TIMER_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"
#include "runtime/gpu/scoped_event.h"
#include "tools/support/domain.h"

namespace octet {

// With several nodes, all functions are collective.
class DeviceTimer {
 public:
  // Not during Run. The domain must outlive it.
  static absl::StatusOr<DeviceTimer> Create(Domain& domain);

  // Returns the microseconds between events around the work that `enqueue` enqueues on each rank's
  // stream, starting from a barrier of each node's GPUs; of the slowest rank. Not during Run.
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status(Rank&)> enqueue);

  // Likewise from a barrier of the host threads: where the time of a step begins. Calls `prepare`
  // before and waits for what it enqueues.
  absl::StatusOr<double> TimeFromHost(absl::FunctionRef<absl::Status(Rank&)> prepare,
                                      absl::FunctionRef<absl::Status(Rank&)> enqueue);

  // Returns the median of `repetitions` times from the GPUs' barrier.
  absl::StatusOr<double> MedianTime(int repetitions,
                                    absl::FunctionRef<absl::Status(Rank&)> enqueue);

 private:
  struct Watch {
    ScopedEvent start;
    ScopedEvent stop;
    double us = 0;
  };
  // Returns the longest time of the last Run.
  absl::StatusOr<double> Slowest() const;

  DeviceTimer(Domain& domain, DomainBarrier barrier)
      : domain_(&domain),
        barrier_(std::move(barrier)),
        watches_(static_cast<size_t>(domain.ranks_per_node())) {}
  absl::Status Init();

  Domain* domain_;
  DomainBarrier barrier_;
  std::vector<Watch> watches_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_DEVICE_TIMER_H_
