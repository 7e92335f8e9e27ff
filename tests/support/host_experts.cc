#include "tests/support/host_experts.h"

#include <cstddef>

#include "absl/types/span.h"
#include "kernels/ep/physical.h"
#include "kernels/oracle/reference.h"

namespace octet {
namespace {

constexpr uint16_t kNan = 0x7fff;

// What a token gets from the experts of one rank: their weighted sum, rounded once.
std::vector<uint16_t> SumOfToken(EpConfig config, const StepInput& input, int rank,
                                 const RowSource& source) {
  const auto num_ranks = static_cast<int>(input.ranks.size());
  const int num_local = config.num_local_experts(num_ranks);
  RankInput token = input.expert_inputs()[static_cast<size_t>(source.rank)].Tokens(
      config, static_cast<size_t>(source.token), 1);
  std::vector<int32_t> ids(token.topk_idx.begin(), token.topk_idx.end());
  for (int32_t& id : ids) {
    if (id >= 0 && id / num_local != rank) id = -1;
  }
  token.topk_idx = ids;
  config.combine_order = CombineOrder::kFlat;
  return ReferenceCombine(config, num_ranks, token, input.expert_scale);
}

}  // namespace

std::vector<uint16_t> HostExpertOutputs(const EpConfig& config, const StepInput& input, int rank) {
  if (!config.placement.empty()) {
    return HostExpertOutputs(PhysicalConfig(config), PhysicalStep(config, input), rank);
  }
  const ReferenceReceived received = ReferenceDispatch(config, input.sent(), rank);
  const bool deduplicated = config.output == Output::kDeduplicated;
  const auto hidden = static_cast<size_t>(config.hidden);
  const int num_local = config.num_local_experts(static_cast<int>(input.ranks.size()));
  const size_t first = static_cast<size_t>(rank) * static_cast<size_t>(num_local);
  std::vector<uint16_t> out;
  for (const RowSource& row : deduplicated ? received.tokens : received.sources) {
    std::vector<uint16_t> each(hidden, kNan);
    if (row.rank >= 0 && deduplicated) {
      each = SumOfToken(config, input, rank, row);
    } else if (row.rank >= 0) {
      const StepInput::PerRank& source = input.ranks[static_cast<size_t>(row.rank)];
      ReferenceExpert(
          config.dtype,
          absl::MakeConstSpan(source.x).subspan(static_cast<size_t>(row.token) * hidden, hidden),
          input.expert_scale[first + static_cast<size_t>(row.local_expert)], absl::MakeSpan(each));
    }
    out.insert(out.end(), each.begin(), each.end());
  }
  return out;
}

}  // namespace octet
