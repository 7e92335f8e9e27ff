#include "tools/step/step_buffers.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/oracle/pointwise_expert.h"
#include "octet/dtype.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

template <typename T>
absl::Status Copy(Rank& rank, absl::Span<const T> from, const DeviceMemory& to) {
  if (from.empty()) return absl::OkStatus();
  return OCTET_GPU(hipMemcpyAsync(to.as<void>(), from.data(), from.size() * sizeof(T),
                                  hipMemcpyHostToDevice, rank.stream()));
}

absl::Status Fill(Rank& rank, const DeviceMemory& memory, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return OCTET_GPU(hipMemsetAsync(memory.as<void>(), 0xff, bytes, rank.stream()));
}

}  // namespace

absl::StatusOr<StepBuffers> StepBuffers::Create(const Rank& rank, const EpConfig& config,
                                                bool expert_out, int num_nodes) {
  StepBuffers buffers;
  buffers.config_ = config;
  const auto tokens = static_cast<size_t>(config.max_tokens_per_rank);
  const size_t choices = tokens * static_cast<size_t>(config.topk);
  const size_t row_bytes = config.dtype_row_bytes();
  const EpConfig within = IntranodeConfig(config, {.num_nodes = num_nodes});
  const auto num_local = static_cast<size_t>(within.num_local_experts(rank.num_ranks()));
  OCTET_ASSIGN_OR_RETURN(buffers.x, DeviceMemory::Allocate(tokens * config.dispatch_row_bytes()));
  OCTET_ASSIGN_OR_RETURN(buffers.y, DeviceMemory::Allocate(tokens * row_bytes));
  OCTET_ASSIGN_OR_RETURN(buffers.topk_idx, DeviceMemory::Allocate(choices * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(buffers.topk_weights, DeviceMemory::Allocate(choices * sizeof(float)));
  OCTET_ASSIGN_OR_RETURN(buffers.expert_scale, DeviceMemory::Allocate(num_local * sizeof(float)));
  if (const int row_words = config.x_scale_words(); row_words > 0) {
    const size_t words = tokens * static_cast<size_t>(row_words);
    OCTET_ASSIGN_OR_RETURN(buffers.x_scales, DeviceMemory::Allocate(words * sizeof(uint32_t)));
  }
  if (expert_out) {
    const auto rows = static_cast<size_t>(within.expert_out_rows(rank.num_ranks()));
    OCTET_ASSIGN_OR_RETURN(buffers.expert_out, DeviceMemory::Allocate(rows * row_bytes));
    OCTET_RETURN_IF_ERROR(LoadPointwiseExpert(within));
  }
  return buffers;
}

absl::Status StepBuffers::Upload(Rank& rank, const RankInput& input) {
  num_tokens_ = input.num_tokens;
  has_weights_ = num_tokens_ == 0 || !input.topk_weights.empty();
  has_scatter_ = !input.scatter_idx.empty();
  if (has_scatter_ && scatter_idx.bytes() == 0) {
    OCTET_ASSIGN_OR_RETURN(scatter_idx, DeviceMemory::Allocate(topk_idx.bytes()));
  }
  if (config_.x_scale_words() > 0) {
    OCTET_RETURN_IF_ERROR(Copy(rank, input.fp8, x));
    OCTET_RETURN_IF_ERROR(Copy(rank, input.scales, x_scales));
  } else if (!input.bytes.empty()) {
    OCTET_RETURN_IF_ERROR(Copy(rank, input.bytes, x));
  } else {
    OCTET_RETURN_IF_ERROR(Copy(rank, input.x, x));
  }
  OCTET_RETURN_IF_ERROR(Copy(rank, input.topk_idx, topk_idx));
  OCTET_RETURN_IF_ERROR(Copy(rank, input.topk_weights, topk_weights));
  return Copy(rank, input.scatter_idx, scatter_idx);
}

absl::Status StepBuffers::UploadExpertScale(Rank& rank, absl::Span<const float> factors) const {
  return Copy(rank, factors, expert_scale);
}

absl::Status StepBuffers::UploadBias(Rank& rank, absl::Span<const uint16_t> values) {
  has_bias_ = !values.empty();
  if (has_bias_ && bias.bytes() == 0) {
    OCTET_ASSIGN_OR_RETURN(bias, DeviceMemory::Allocate(values.size() * sizeof(uint16_t)));
  }
  return Copy(rank, values, bias);
}

absl::Status StepBuffers::Poison(Rank& rank, int rows) const {
  OCTET_RETURN_IF_ERROR(Fill(rank, y, y.bytes()));
  const size_t outputs = static_cast<size_t>(rows) * config_.dtype_row_bytes();
  return Fill(rank, expert_out, std::min(outputs, expert_out.bytes()));
}

DispatchArgs StepBuffers::dispatch_args() const {
  return {.x = x.as<void>(),
          .topk_idx = topk_idx.as<int32_t>(),
          .topk_weights = has_weights_ ? topk_weights.as<float>() : nullptr,
          .num_tokens = num_tokens_,
          .high_throughput = {.x_scales = x_scales.as<void>(),
                              .scatter_idx = has_scatter_ ? scatter_idx.as<int32_t>() : nullptr,
                              .cached = cached.layout > 0 ? &cached : nullptr}};
}

ScaledCombineArgs StepBuffers::fused_combine_args(const Received& received) const {
  ScaledCombineArgs args = {combine_args()};
  args.expert_out = received.x;
  args.expert_scale = expert_scale.as<float>();
  return args;
}

CombineArgs StepBuffers::combine_args() const {
  return {.expert_out = expert_out.as<void>(),
          .y = y.as<void>(),
          .bias = has_bias_ ? bias.as<void>() : nullptr};
}

}  // namespace octet
