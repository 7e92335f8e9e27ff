#include "kernels/pointwise_expert.h"

#include "kernels/device/pointwise_expert.h"
#include "runtime/gpu_status.h"
#include "runtime/topology.h"

namespace octet {

absl::Status PointwiseExpert(Rank& rank, const EpConfig& config, const Received& received,
                             const float* expert_scale, void* out) {
  const GpuInfo& gpu = rank.node().topology().gpus[static_cast<size_t>(rank.device())];
  PointwiseExpertParams params = {};
  params.x = received.x;
  params.sources = received.sources;
  params.total_rows = received.expert_offsets + config.num_local_experts(rank.num_ranks());
  params.expert_scale = expert_scale;
  params.num_local_experts = config.num_local_experts(rank.num_ranks());
  params.row_vecs = static_cast<int>(received.row_bytes / 16);
  params.out = out;
  constexpr int kWavesPerBlock = 4;
  constexpr int kBlocksPerUnit = 4;
  const LaunchShape shape = {.blocks = gpu.num_compute_units * kBlocksPerUnit,
                             .threads = gpu.wave_size * kWavesPerBlock};
  return OCTET_GPU(
      LaunchPointwiseExpert(params, config.dtype == DType::kFloat16, shape, rank.stream()));
}

}  // namespace octet
