// What an ExpertParallel is made for. Fixed at creation; only num_tokens varies from call to call.
#ifndef OCTET_KERNELS_EP_CONFIG_H_
#define OCTET_KERNELS_EP_CONFIG_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/dtype.h"

namespace octet {

enum class Strategy {
  kAuto,    // picks by shape
  kDirect,  // every (token, k) is sent by itself: kernels/direct
};
absl::string_view StrategyName(Strategy strategy);
absl::StatusOr<Strategy> ParseStrategy(absl::string_view name);  // "auto", "direct"

// How a sender finds the place of a row in the receiver's buffer.
enum class Slots {
  kPrefix,  // prefix sums over the routing: rows of one (expert, source) in token order, always
  kAtomic,  // racing counters: rows of one (expert, source) in any order
};

// What a receiver waits for.
enum class Flags {
  kToken,   // one flag for each (token, k): rows are taken as they come
  kSource,  // one flag for each source rank, set when all its rows have been sent
};

// The shape of the launches; 0 leaves the choice to the strategy.
struct Tuning {
  int blocks = 0;       // of a kernel that sends and receives
  int send_blocks = 0;  // of those, how many send; the others receive
  int waves_per_block = 0;
  int row_parts = 0;  // pieces that a row is cut into, each sent by a wave of its own
};

struct EpConfig {
  int num_experts = 0;          // E, over all ranks; expert e lives on rank e / (E / num_ranks)
  int topk = 0;                 // K, 1 .. min(32, E)
  int hidden = 0;               // H, elements of a row; a multiple of 8
  int max_tokens_per_rank = 0;  // M, the most tokens that any rank ever passes to Dispatch
  DType dtype = DType::kBFloat16;
  Strategy strategy = Strategy::kAuto;
  Slots slots = Slots::kPrefix;
  Flags flags = Flags::kToken;
  Tuning tuning = {};

  int num_local_experts(int num_ranks) const { return num_experts / num_ranks; }
};

inline constexpr int kMaxTopk = 32;
inline constexpr int kMaxExperts = 2048;
inline constexpr int kMaxHidden = 65536;
inline constexpr int kMaxTokensPerRank = 65536;
inline constexpr int kMaxRowParts = 32;

// kInvalidArgument with the field, its value and what it must be; OK otherwise.
absl::Status Validate(const EpConfig& config, int num_ranks);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_CONFIG_H_
