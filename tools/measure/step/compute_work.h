// A kernel of the caller, to be hidden behind dispatch and combine.
#ifndef OCTET_TOOLS_MEASURE_STEP_COMPUTE_WORK_H_
#define OCTET_TOOLS_MEASURE_STEP_COMPUTE_WORK_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"
#include "octet/trace.h"
#include "runtime/device/launch_shape.h"

namespace octet {

// Computes for `us` microseconds on `blocks` compute units of each GPU, in a stream of its own, and
// hardly uses memory. One object serves all ranks.
class ComputeWork {
 public:
  // Measures how many rounds that takes. Not during Run. The node must outlive it.
  static absl::StatusOr<std::unique_ptr<ComputeWork>> Create(Node& node, double us, int blocks);
  ~ComputeWork();
  ComputeWork(const ComputeWork&) = delete;
  ComputeWork& operator=(const ComputeWork&) = delete;

  // Returns the kernel's own time on the slowest rank, launch included.
  double measured_us() const { return measured_us_; }
  int blocks() const { return shape_.blocks; }

  // ---- On a rank's thread inside Node::Run.

  // Enqueues the kernel on the rank's stream.
  absl::Status Enqueue(Rank& rank);
  // Enqueues the kernel concurrently with what `enqueue` puts on the rank's stream: after the
  // earlier contents of the stream, and before what is enqueued later.
  absl::Status EnqueueBeside(Rank& rank, absl::FunctionRef<absl::Status()> enqueue);
  // Checks that the last kernel has computed the right result, else returns kDataLoss. The stream
  // must be idle.
  absl::Status Verify(Rank& rank) const;

  // Records with `tag` into the blocks of `trace` from `first_block` on; null stops the recording.
  void Record(const TraceCollector* trace, int first_block, uint32_t tag);

 private:
  struct RankState;

  ComputeWork(Node& node, const LaunchShape& shape);
  absl::Status InitRank(Rank& rank);
  absl::Status Measure(double us);
  absl::Status Launch(Rank& rank, hipStream_t stream) const;
  RankState& StateOf(const Rank& rank) const { return *ranks_[static_cast<size_t>(rank.rank())]; }

  Node& node_;
  const LaunchShape shape_;
  int rounds_ = 1;
  double measured_us_ = 0;
  const TraceCollector* trace_ = nullptr;
  int first_block_ = 0;
  uint32_t tag_ = 0;
  std::vector<std::unique_ptr<RankState>> ranks_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_COMPUTE_WORK_H_
