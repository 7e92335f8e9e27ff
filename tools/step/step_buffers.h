// One rank's GPU memory for steps: what its calls read and write.
#ifndef OCTET_TOOLS_STEP_STEP_BUFFERS_H_
#define OCTET_TOOLS_STEP_STEP_BUFFERS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/oracle/reference.h"
#include "kernels/oracle/stand_in.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/memory/device_memory.h"

namespace octet {

class StepBuffers {
 public:
  // Allocates memory for the largest step of `config` on the calling rank's GPU. `expert_out`: also
  // for the outputs of experts that Combine does not apply itself. `num_nodes`: that `config` is
  // over.
  static absl::StatusOr<StepBuffers> Create(const Rank& rank, const EpConfig& config,
                                            bool expert_out = true, int num_nodes = 1);

  // Copies one rank's input to the GPU, in stream order. The input must stay unchanged until the
  // stream has been synchronised. From then on dispatch_args() is a dispatch of this input; memory
  // for what only some steps have is allocated with the first that has it.
  absl::Status Upload(Rank& rank, const RankInput& input);
  // Likewise the factors of this rank's experts ([L]), and what combine adds to each sum ([H];
  // empty: nothing).
  absl::Status UploadExpertScale(Rank& rank, absl::Span<const float> factors) const;
  absl::Status UploadBias(Rank& rank, absl::Span<const uint16_t> bias);

  // Fills what a step writes with NaNs, in stream order: all of y, and the outputs of experts for
  // `rows` rows in expert order.
  absl::Status Poison(Rank& rank, int rows) const;

  DispatchArgs dispatch_args() const;
  // Of a combine that applies the stand-ins of the experts itself to the rows of `received`; and of
  // one that takes their outputs from expert_out.
  ScaledCombineArgs fused_combine_args(const Received& received) const;
  CombineArgs combine_args() const;

  int num_tokens() const { return num_tokens_; }

  DeviceMemory x;             // [M] rows
  DeviceMemory x_scales;      // [M][scale words], if x has scales
  DeviceMemory topk_idx;      // [M][K]
  DeviceMemory topk_weights;  // [M][K]
  DeviceMemory scatter_idx;   // [M][K], once there was an input that has them
  DeviceMemory y;             // [M][H]
  DeviceMemory bias;          // [H], once there was one
  DeviceMemory expert_scale;  // [L]
  DeviceMemory expert_out;    // [EpConfig::expert_out_rows][H], or none
  // The dispatch whose layout the next one uses again, on this rank; layout 0: none.
  DispatchHandle cached;

 private:
  EpConfig config_;
  int num_tokens_ = 0;
  bool has_weights_ = true;
  bool has_scatter_ = false;
  bool has_bias_ = false;
};

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_STEP_BUFFERS_H_
