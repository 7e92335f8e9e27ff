// What an ExpertParallel is made for. Fixed at creation; only num_tokens varies from call to call.
#ifndef OCTET_EP_CONFIG_H_
#define OCTET_EP_CONFIG_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "octet/dtype.h"
#include "octet/fp8.h"
#include "octet/fp8_scale.h"

namespace octet {

enum class Strategy {
  // The fastest of the others for such calls, by rules and by the tuning table
  // (kernels/ep_plan.h). Whatever it is, legal calls are those that every strategy allows that
  // can do what the configuration asks for: with more than one such strategy, one dispatch
  // outstanding, no scatter_idx and no cached layouts.
  kAuto,
  kDirect,          // every (token, k) is sent by itself: kernels/direct
  kHighThroughput,  // a token once to each rank, its places computed first: kernels/high_throughput
  kLowLatency,      // a token once to each rank, through a staging buffer: kernels/low_latency
};
absl::string_view StrategyName(Strategy strategy);
absl::StatusOr<Strategy> ParseStrategy(absl::string_view name);  // the same names

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

// In which order the outputs of a token's experts are added up (kernels/reference.h has it
// exactly).
enum class CombineOrder {
  // The strategy's own: direct kFlat, the others kPerRank. With Strategy::kAuto say which, if bits
  // must not depend on what is chosen.
  kAuto,
  kFlat,     // by k; every output crosses the link by itself
  kPerRank,  // first those of one rank, there, rounded to the dtype; then by rank
};

// What travels to the experts. Combine always takes rows of EpConfig::dtype.
enum class DispatchFormat {
  kSame,   // [H] of the dtype
  kFp8,    // [H] of 8-bit floats that the caller has quantised, and the scales of their groups
  kBytes,  // EpConfig::row_bytes bytes
  // [H] of the dtype, quantised on the way: what is received is as with kFp8, in
  // EpConfig::fp8_form, each row in whole 16 bytes: what is beyond H has no meaning.
  // kernels/fp8_rows.h says what becomes of which row, to the bit.
  kQuantizedFp8,
};

constexpr absl::string_view DispatchFormatName(DispatchFormat format) {
  switch (format) {
    case DispatchFormat::kSame:
      return "same";
    case DispatchFormat::kFp8:
      return "fp8";
    case DispatchFormat::kBytes:
      return "bytes";
    case DispatchFormat::kQuantizedFp8:
      return "quantized_fp8";
  }
  return "unknown";
}

// How received rows are laid out.
enum class Output {
  kPackedExperts,  // a row for each choice: expert by expert, therein by (source rank, token)
  kDeduplicated,   // a row for each token: by (source rank, token), with its choices beside it;
                   // high_throughput only
  // As kPackedExperts, but each expert's rows begin where there is room for all that it can get:
  // [L][R·M][H]; low_latency only.
  kExpertMajor,
  // A row for each choice: source rank by source rank, each with room for all that it can send,
  // [R][M·min(K, L)][H], therein by (expert, token); low_latency only.
  kRankMajor,
};

constexpr absl::string_view OutputName(Output output) {
  switch (output) {
    case Output::kPackedExperts:
      return "packed";
    case Output::kDeduplicated:
      return "deduplicated";
    case Output::kExpertMajor:
      return "expert_major";
    case Output::kRankMajor:
      return "rank_major";
  }
  return "unknown";
}

// What becomes of a token that has chosen several experts of one rank, in kPackedExperts.
enum class Duplicates {
  kFill,   // its row is copied to the place of each choice
  kIndex,  // rows are received once, as in kDeduplicated, and an index says which row is whose
};

// How rows come home.
enum class CombineMethod {
  kAuto,  // kPush where its memory is less than half of what is received, else kPull
  kPush,  // the experts' rank stores them at the origin
  kPull,  // the origin loads them. Until then they lie in the memory of Received::x, which Combine
          // overwrites, and which the caller must not write to between a Combine and the next
          // Dispatch: this rank's Combine ends while peers may still be loading
};

// How dispatch moves rows (kernels/device/row_mover.h).
enum class RowCopies {
  kAuto,     // kVectors: faster on H200s, with few blocks and with many
  kVectors,  // the lanes of a wave load and store 16 bytes each
  kBulk,     // the GPU's copy unit, where it has one, piece by piece through shared memory
};

constexpr absl::string_view RowCopiesName(RowCopies copies) {
  switch (copies) {
    case RowCopies::kAuto:
      return "auto";
    case RowCopies::kVectors:
      return "vectors";
    case RowCopies::kBulk:
      return "bulk";
  }
  return "unknown";
}

// What becomes of a call in which a rank is silent: counts, rows or credits of it do not come
// within the deadline.
enum class FailurePolicy {
  kAbort,  // it fails on all ranks, with a Status that says who waited for what
  // The rank is masked by those that have waited for it, and they go on without it: ExpertParallel,
  // "Masks". low_latency only. Each rank has memory of its own for what may come home from each
  // other: R rows for each token, R·min(K, L) with CombineOrder::kFlat.
  kMask,
};

// The shape of the launches; 0 leaves the choice to the strategy, which says in its config() what
// it has chosen. What a strategy has no use for it ignores.
struct Tuning {
  int blocks = 0;  // of a kernel that sends and receives
  // direct, and low_latency's dispatch: of those, how many send; the others receive.
  int send_blocks = 0;
  int waves_per_block = 0;
  // Pieces that a row is cut into, each sent by a wave of its own; high_throughput: in combine.
  // low_latency: waves that take a received row to its places together.
  int row_parts = 0;
  // high_throughput: of a block's waves, how many send; the others receive. All: first they send,
  // then they receive.
  int send_waves = 0;
  int combine_send_waves = 0;
  RowCopies row_copies = RowCopies::kAuto;  // high_throughput

  bool operator==(const Tuning&) const = default;
};

struct EpConfig {
  int num_experts = 0;          // E, over all ranks; expert e lives on rank e / (E / num_ranks)
  int topk = 0;                 // K, 1 .. min(32, E)
  int hidden = 0;               // H, elements of a row; a multiple of 8
  int max_tokens_per_rank = 0;  // M, the most tokens that any rank ever passes to Dispatch
  DType dtype = DType::kBFloat16;
  Strategy strategy = Strategy::kAuto;
  // direct only; the others have prefix sums and flags for tokens.
  Slots slots = Slots::kPrefix;
  Flags flags = Flags::kToken;
  CombineOrder combine_order = CombineOrder::kAuto;
  // Blocks that a launch may take at most, so that the rest of the GPU can compute; 0: all.
  int max_blocks = 0;

  // low_latency only, these three.
  FailurePolicy failure_policy = FailurePolicy::kAbort;
  // kMask: how long a call waits for what a rank sends; for the rank's credit, without which
  // nothing may be sent to it, half as long. At most the node's timeout, which zero stands for.
  absl::Duration mask_timeout = absl::ZeroDuration();
  // Counts rows and measures waits: ExpertParallel::Statistics.
  bool statistics = false;

  // high_throughput only, from here to tuning; low_latency has output, of the formats kSame and
  // kQuantizedFp8, and what belongs to the latter: scale_format, scale_group and fp8_form.
  DispatchFormat dispatch_format = DispatchFormat::kSame;
  ScaleFormat scale_format = ScaleFormat::kFloat32;  // octet/fp8_scale.h
  CombineMethod combine_method = CombineMethod::kAuto;
  int scale_group = 128;  // columns that share a scale; of kQuantizedFp8: 64, 128 or 256
  Fp8Form fp8_form = Fp8Form::kNative;  // of kQuantizedFp8; must be the platform's
  int row_bytes = 0;                    // of DispatchFormat::kBytes; a multiple of 16
  Output output = Output::kPackedExperts;
  Duplicates duplicates = Duplicates::kFill;
  // Each expert's first row is a multiple of this; rows between are zero. kPackedExperts only.
  int expert_alignment = 1;
  // Layouts that are kept on every rank: how many dispatches with a layout of their own a handle
  // stays usable, its own included. Each takes about 128 · R · M bytes at K up to 9.
  int kept_layouts = 1;
  // Dispatch waits on the host until it is known how much this rank receives (but not for the rows)
  // and says so in Received. Otherwise nothing waits, and the caller knows Received::max_rows.
  bool host_totals = false;

  Tuning tuning = {};

  int num_local_experts(int num_ranks) const { return num_experts / num_ranks; }
  // Whether a token is received once by each rank, whatever it has chosen there.
  bool rows_once() const {
    return output == Output::kDeduplicated || duplicates == Duplicates::kIndex;
  }
  // Whether rows lie apart, with room between them for all that could come.
  bool rows_apart() const { return output == Output::kExpertMajor || output == Output::kRankMajor; }
  // Rows in expert order that a rank may receive, padding included: Received::max_rows.
  int max_rows(int num_ranks) const;
  // Rows of CombineArgs::expert_out that a rank needs memory for, [hidden] of the dtype each: as
  // many; with kDeduplicated one for each token of each rank.
  int expert_out_rows(int num_ranks) const;
  size_t dispatch_row_bytes() const;  // of a row of x
  size_t received_row_bytes() const;  // of a row of Received::x
  int scale_words() const;            // 4-byte words of a received row of scales; 0: none
};

inline constexpr int kMaxTopk = 32;
inline constexpr int kMaxExperts = 2048;
inline constexpr int kMaxHidden = 65536;
inline constexpr int kMaxTokensPerRank = 65536;
inline constexpr int kMaxRowParts = 32;
inline constexpr int kMaxRowBytes = 2 * kMaxHidden;
inline constexpr int kMaxExpertAlignment = 1024;
inline constexpr int kMaxKeptLayouts = 1024;
// Of low_latency, which is made for up to half as many tokens.
inline constexpr int kMaxLowLatencyTokens = 1024;
inline constexpr int kMaxLowLatencyExperts = 1024;
inline constexpr int kMaxLowLatencyHidden = 16384;

// kInvalidArgument with the field, its value and what it must be; OK otherwise. With
// Strategy::kAuto: if no strategy can do it, why each of them cannot.
absl::Status Validate(const EpConfig& config, int num_ranks);

}  // namespace octet

#endif  // OCTET_EP_CONFIG_H_
