#include "tools/step/step_executor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/ep/ep_calls.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/ep/physical.h"
#include "kernels/oracle/pointwise_expert.h"
#include "runtime/base/status_macros.h"

namespace octet {

bool CanFuseExpert(const EpConfig& config) {
  return config.scale_words() == 0 && !config.rows_once();
}

std::vector<int> RowsInExpertOrder(const EpConfig& logical, absl::Span<const RankInput> sent) {
  const EpConfig config = PhysicalConfig(logical);
  const PhysicalInputs physical(logical, sent);
  const absl::Span<const RankInput> inputs = physical.inputs();
  const int most = config.max_rows(static_cast<int>(inputs.size()));
  if (config.rows_apart()) return std::vector<int>(inputs.size(), most);
  std::vector<int64_t> of_expert(static_cast<size_t>(config.num_experts));
  for (const RankInput& input : inputs) {
    for (const int32_t id : input.topk_idx) {
      if (id >= 0 && id < config.num_experts) ++of_expert[static_cast<size_t>(id)];
    }
  }
  std::vector<int64_t> of_rank(inputs.size());
  for (size_t e = 0; e < of_expert.size(); ++e) {
    const int64_t padded = of_expert[e] + config.high_throughput.expert_alignment - 1;
    of_rank[e * inputs.size() / of_expert.size()] +=
        padded - padded % config.high_throughput.expert_alignment;
  }
  std::vector<int> rows;
  for (const int64_t count : of_rank) {
    rows.push_back(static_cast<int>(std::min<int64_t>(count, most)));
  }
  return rows;
}

StepExecutor::StepExecutor(ExpertParallel& ep, const Options& options)
    : ep_(ep),
      within_(IntranodeConfig(ep.config(), {.num_nodes = options.num_nodes})),
      split_(options.split),
      fuse_experts_(options.fuse_experts && CanFuseExpert(ep.config())) {}

absl::Status StepExecutor::Poison(Rank& rank, const StepBuffers& buffers, int rows) const {
  OCTET_RETURN_IF_ERROR(buffers.Poison(rank, rows));
  return PoisonReceived(ep_, rank, rows);
}

absl::Status StepExecutor::EnqueueExperts(Rank& rank, const StepBuffers& buffers,
                                          const Received& received) const {
  if (fuse_experts_) return absl::OkStatus();
  return PointwiseExpert(rank, within_, received, buffers.expert_scale.as<float>(),
                         buffers.expert_out.as<void>());
}

ScaledCombineArgs StepExecutor::combine_args(const StepBuffers& buffers,
                                             const Received& received) const {
  if (fuse_experts_) return buffers.fused_combine_args(received);
  return {buffers.combine_args()};
}

absl::Status StepExecutor::Enqueue(Rank& rank, const StepBuffers& buffers, Received& received,
                                   Around around) const {
  const DispatchArgs args = buffers.dispatch_args();
  DispatchHandle handle;
  const auto take = [&received](absl::StatusOr<Received> dispatched) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(received, std::move(dispatched));
    return absl::OkStatus();
  };
  if (split_) {
    OCTET_RETURN_IF_ERROR(around(StepCall::kDispatchSend, [&]() -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(handle, ep_.DispatchSend(rank, args));
      return absl::OkStatus();
    }));
    OCTET_RETURN_IF_ERROR(around(StepCall::kDispatchReceive,
                                 [&] { return take(ep_.DispatchReceive(rank, handle)); }));
  } else {
    OCTET_RETURN_IF_ERROR(
        around(StepCall::kDispatch, [&] { return take(ep_.Dispatch(rank, args)); }));
  }
  OCTET_RETURN_IF_ERROR(
      around(StepCall::kExperts, [&] { return EnqueueExperts(rank, buffers, received); }));
  const ScaledCombineArgs combine = combine_args(buffers, received);
  if (!split_) {
    return around(StepCall::kCombine,
                  [&] { return ScaledCombine(ep_, rank, received.handle, combine); });
  }
  OCTET_RETURN_IF_ERROR(around(StepCall::kCombineSend, [&] {
    return ScaledCombineSend(ep_, rank, received.handle, combine);
  }));
  return around(StepCall::kCombineReceive,
                [&] { return ScaledCombineReceive(ep_, rank, received.handle, combine); });
}

}  // namespace octet
