// Chooses the launch shape of a strategy's kernels. Host only: a GPU is what its GpuInfo and the
// occupancy numbers say, so that tests need none.
//
// The plan fills in the fields of EpConfig::tuning that the caller and the tuning table leave open.
// Fields that are set already are only checked. A strategy calls ChooseBlock first, since the
// occupancy depends on the block, then ChooseBlocks and, if it divides its blocks,
// ChooseSendBlocks.
#ifndef OCTET_KERNELS_EP_BASE_LAUNCH_PLAN_H_
#define OCTET_KERNELS_EP_BASE_LAUNCH_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/ep/base/call_sequence.h"
#include "launch_limits.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "runtime/device/launch_shape.h"

namespace octet {

// Returns the bytes of the rows that a rank sends in a dispatch of max_tokens_per_rank tokens.
int64_t CallBytes(const EpConfig& config);

class LaunchPlan {
 public:
  // `config` receives the choices and must outlive the plan. `limits`: of what is left open.
  LaunchPlan(EpConfig* config, const GpuInfo& gpu, const platform::LaunchLimits& limits)
      : config_(*config),
        wave_size_(gpu.wave_size),
        compute_units_(gpu.num_compute_units),
        limits_(limits) {}

  // The tuning with all choices so far.
  Tuning& tuning() { return config_.tuning; }
  const LaunchShape& shape() const { return shape_; }

  // Chooses the waves of a block: as many as `most_threads` and the limits allow.
  // `shared_bytes(waves)`: the dynamic shared memory of a block. Returns kInvalidArgument if the
  // caller has set more waves than `most_threads`.
  absl::Status ChooseBlock(int most_threads, absl::FunctionRef<size_t(int waves)> shared_bytes);

  // Chooses the number of blocks: `per_unit` on each compute unit, at most EpConfig::max_blocks and
  // the limits. `resident_per_unit`: how many blocks can be resident. Returns kInvalidArgument if
  // not all blocks can be resident at once.
  absl::Status ChooseBlocks(int per_unit, int resident_per_unit);

  // For strategies in which some blocks send and the others receive: chooses how many send, half of
  // them. Returns kInvalidArgument unless there is at least one block of each kind.
  absl::Status ChooseSendBlocks();

  // Returns how many blocks of a launch's grid send.
  int SendBlocks(Phases phases) const;

 private:
  EpConfig& config_;
  int wave_size_;
  int compute_units_;
  platform::LaunchLimits limits_;
  LaunchShape shape_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_LAUNCH_PLAN_H_
