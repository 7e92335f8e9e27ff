#include "kernels/oracle/pointwise_expert.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/oracle/pointwise_expert_kernel.h"
#include "octet/fp8.h"
#include "octet/topology.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

constexpr int kElementsPerVec = 8;

ExpertInput InputOf(const EpConfig& config) {
  if (config.scale_words() == 0) return ExpertInput::kDtype;
  return WithNativeFp8(config.fp8_form) == Fp8Form::kE4m3Fn ? ExpertInput::kE4m3Fn
                                                            : ExpertInput::kE4m3Fnuz;
}

// Excludes raw bytes, and scales that cover only part of a vector.
bool CanDo(const EpConfig& config) {
  return config.dispatch_format != DispatchFormat::kBytes &&
         (config.scale_words() == 0 || config.scale_group % kElementsPerVec == 0);
}

PointwiseExpertVariant VariantOf(const EpConfig& config) {
  return {.fp16 = config.dtype == DType::kFloat16, .input = InputOf(config)};
}

}  // namespace

absl::Status LoadPointwiseExpert(const EpConfig& config) {
  return CanDo(config) ? OCTET_GPU(LoadPointwiseExpert(VariantOf(config))) : absl::OkStatus();
}

absl::Status PointwiseExpert(Rank& rank, const EpConfig& config, const Received& received,
                             const float* expert_scale, void* out) {
  if (!CanDo(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the experts' stand-in knows neither raw bytes nor a scale for ",
                     config.scale_group, " columns"));
  }
  const GpuInfo& gpu = rank.node().topology().gpus[static_cast<size_t>(rank.rank())];
  const bool tokens = config.output == Output::kDeduplicated;
  PointwiseExpertParams params = {};
  params.x = received.x;
  params.scales = static_cast<const uint32_t*>(received.scales);
  params.num_local_experts = config.num_local_experts(rank.num_ranks());
  if (config.rows_apart()) {
    params.ranges = received.low_latency.ranges;
    params.num_ranges = params.num_local_experts * rank.num_ranks();
  } else {
    params.num_rows = tokens ? received.high_throughput.source_offsets + rank.num_ranks()
                             : received.expert_offsets + params.num_local_experts;
  }
  params.sources = received.sources;
  params.row_index = received.high_throughput.row_index;
  params.topk_idx = received.high_throughput.recv_topk_idx;
  params.topk_weights = received.high_throughput.recv_topk_weights;
  params.expert_scale = expert_scale;
  params.topk = config.topk;
  params.row_vecs = config.hidden / kElementsPerVec;
  params.group_vecs = config.scale_group / kElementsPerVec;
  params.scale_words = config.scale_words();
  params.scale_format = config.scale_format;
  params.out = out;
  constexpr int kWavesPerBlock = 4;
  constexpr int kBlocksPerUnit = 4;
  const LaunchShape shape = {.blocks = gpu.num_compute_units * kBlocksPerUnit,
                             .threads = gpu.wave_size * kWavesPerBlock};
  return OCTET_GPU(LaunchPointwiseExpert(params, VariantOf(config), shape, rank.stream()));
}

}  // namespace octet
