#include "kernels/ep/base/launch_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/gpu/launch.h"

namespace octet {

int64_t CallBytes(const EpConfig& config) {
  return int64_t{config.max_tokens_per_rank} * config.topk *
         static_cast<int64_t>(config.dispatch_row_bytes());
}

absl::Status LaunchPlan::ChooseBlock(int most_threads,
                                     absl::FunctionRef<size_t(int waves)> shared_bytes) {
  Tuning& tuning = config_.tuning;
  const int most_waves = most_threads / wave_size_;
  if (tuning.waves_per_block == 0) {
    // The caller may have set how many waves send.
    const int least = std::max(tuning.send_waves, tuning.combine_send_waves);
    tuning.waves_per_block = std::min(most_waves, std::max(limits_.waves, least));
  }
  if (tuning.waves_per_block > most_waves) {
    return absl::InvalidArgumentError(absl::StrCat("waves_per_block is ", tuning.waves_per_block,
                                                   "; with waves of ", wave_size_,
                                                   " lanes it can be ", most_waves, " at most"));
  }
  shape_.threads = tuning.waves_per_block * wave_size_;
  shape_.shared_bytes = shared_bytes(tuning.waves_per_block);
  return absl::OkStatus();
}

absl::Status LaunchPlan::ChooseBlocks(int per_unit, int resident_per_unit) {
  Tuning& tuning = config_.tuning;
  if (tuning.blocks == 0) {
    const int least = tuning.send_blocks + 1;
    tuning.blocks = std::min(per_unit * compute_units_, std::max(limits_.blocks, least));
    if (config_.max_blocks > 0) tuning.blocks = std::min(tuning.blocks, config_.max_blocks);
  }
  shape_.blocks = tuning.blocks;
  return CheckResident(EnumName(config_.strategy), shape_, resident_per_unit, compute_units_);
}

absl::Status LaunchPlan::ChooseSendBlocks() {
  Tuning& tuning = config_.tuning;
  if (tuning.blocks < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "blocks is ", tuning.blocks, "; it must be at least 2: one that sends, one that receives"));
  }
  if (tuning.send_blocks == 0) tuning.send_blocks = tuning.blocks / 2;
  if (tuning.send_blocks >= tuning.blocks) {
    return absl::InvalidArgumentError(absl::StrCat("send_blocks is ", tuning.send_blocks,
                                                   "; it must be less than blocks, which is ",
                                                   tuning.blocks));
  }
  return absl::OkStatus();
}

int LaunchPlan::SendBlocks(Phases phases) const {
  switch (phases) {
    case Phases::kBoth:
      return config_.tuning.send_blocks;
    case Phases::kSend:
      return shape_.blocks;
    case Phases::kReceive:
      break;
  }
  return 0;
}

}  // namespace octet
