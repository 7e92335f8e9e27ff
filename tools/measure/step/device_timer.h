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
#include "tools/support/nodes.h"

namespace octet {

// With several nodes, all functions are collective.
class DeviceTimer {
 public:
  // Not during Run. The node, or the nodes, must outlive it.
  static absl::StatusOr<DeviceTimer> Create(Node& node);
  static absl::StatusOr<DeviceTimer> Create(Nodes& nodes);

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

  explicit DeviceTimer(Nodes& nodes)
      : nodes_(&nodes), watches_(static_cast<size_t>(nodes.ranks_per_node())) {}
  absl::Status Init();

  std::unique_ptr<Nodes> owned_;  // if only a node was given
  Nodes* nodes_;
  std::vector<Watch> watches_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_DEVICE_TIMER_H_
