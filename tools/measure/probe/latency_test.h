// Measures the cost of communication without data: launches, barriers, flags.
#ifndef OCTET_TOOLS_MEASURE_PROBE_LATENCY_TEST_H_
#define OCTET_TOOLS_MEASURE_PROBE_LATENCY_TEST_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "octet/trace.h"
#include "runtime/device/node_barrier.h"
#include "runtime/memory/device_memory.h"
#include "runtime/node/node_client.h"
#include "tools/measure/step/device_timer.h"

namespace octet {

// Each function measures once, for as long as it takes to be exact, and returns microseconds. Not
// during Run.
class LatencyTest final : private NodeClient {
 public:
  static absl::StatusOr<std::unique_ptr<LatencyTest>> Create(Node& node);
  ~LatencyTest() override;

  // Measures device events around a kernel of one thread; of the slowest rank.
  absl::StatusOr<double> EmptyLaunch();
  // Measures Rank::Barrier with all ranks arriving together: the mean of many.
  absl::StatusOr<double> HostBarrier();
  // Measures, on the host, Rank::CoordinatedLaunch of a kernel of one thread, from the arrival of
  // all ranks to its return: the mean of some, of the slowest rank.
  absl::StatusOr<double> CoordinatedLaunch();
  // Measures the last rank's kernel start minus the first's, after Rank::CoordinatedLaunch.
  // Ping-pong aligns the clocks; the error is at most half of clock_round_trip().
  absl::StatusOr<double> LaunchSkew();
  double clock_round_trip() const;
  // Measures a flag to another GPU, released and polled for, and one back: the mean of many.
  absl::StatusOr<double> FlagRoundTrip(int from, int to);
  // Measures a barrier of all GPUs inside a kernel: the mean of many.
  absl::StatusOr<double> NodeBarrier();

 private:
  LatencyTest(Node& node, DeviceTimer timer);
  absl::Status Init();

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;
  absl::Status Recover(Rank& rank) override;

  Node& node_;
  DeviceTimer timer_;
  uint32_t client_;
  std::unique_ptr<TraceCollector> trace_;  // knows the clocks
  std::unique_ptr<SymmetricHeap> heap_;
  SymmetricPtr<device::NodeBarrierState> barrier_;
  SymmetricPtr<uint64_t> flag_;
  SymmetricPtr<uint64_t> clock_;
  uint64_t flag_round_ = 1;
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_LATENCY_TEST_H_
