#include "kernels/ep/base/check_tensors.h"

#include <cstddef>
#include <cstdint>

#include "kernels/ep/base/check_pointers.h"
#include "runtime/base/status_macros.h"

namespace octet {

absl::Status CheckDispatchTensors(const Rank& rank, const EpConfig& config,
                                  const DispatchArgs& args) {
  const HighThroughputArgs& own = args.high_throughput;
  OCTET_RETURN_IF_ERROR(CheckPointers(rank, {{"x", args.x},
                                             {"topk_idx", args.topk_idx},
                                             {"topk_weights", args.topk_weights},
                                             {"x_scales", own.x_scales},
                                             {"scatter_idx", own.scatter_idx}}));
  const auto tokens = static_cast<size_t>(args.num_tokens);
  const size_t choices = static_cast<size_t>(config.topk) * sizeof(int32_t);
  const size_t scales = static_cast<size_t>(config.scale_words()) * sizeof(uint32_t);
  return CheckRoom(rank, {{"x", args.x, tokens, config.dispatch_row_bytes()},
                          {"topk_idx", args.topk_idx, own.cached == nullptr ? tokens : 0, choices},
                          {"topk_weights", args.topk_weights, tokens, choices, true},
                          {"x_scales", own.x_scales, tokens, scales, true},
                          {"scatter_idx", own.scatter_idx, tokens, choices, true}});
}

absl::Status CheckCombineTensors(const Rank& rank, const EpConfig& config, int num_ranks,
                                 const CombineRequest& request) {
  const CombineArgs& args = request.args;
  OCTET_RETURN_IF_ERROR(CheckPointers(rank, {{"expert_out", args.expert_out},
                                             {"y", args.y},
                                             {"expert_scale", request.expert_scale, alignof(float)},
                                             {"bias", args.bias}}));
  const size_t row_bytes = config.dtype_row_bytes();
  const auto tokens = static_cast<size_t>(request.handle.num_tokens);
  OCTET_RETURN_IF_ERROR(
      CheckApart(rank, {"y", args.y, tokens * row_bytes},
                 {{"expert_out", args.expert_out, row_bytes}, {"bias", args.bias, row_bytes}}));
  const auto rows = static_cast<size_t>(config.expert_out_rows(num_ranks));
  const auto experts = static_cast<size_t>(config.num_local_experts(num_ranks));
  return CheckRoom(rank, {{"expert_out", args.expert_out, rows, row_bytes},
                          {"y", args.y, tokens, row_bytes},
                          {"expert_scale", request.expert_scale, experts, sizeof(float), true},
                          {"bias", args.bias, 1, row_bytes, true}});
}

}  // namespace octet
