// The configuration of an ExpertParallel. It is fixed at creation; only num_tokens varies from call
// to call.
#ifndef OCTET_EP_CONFIG_H_
#define OCTET_EP_CONFIG_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/dtype.h"
#include "octet/enum_names.h"
#include "octet/fp8.h"
#include "octet/fp8_scale.h"
#include "octet/placement.h"
#include "octet/types/weight_format.h"

namespace octet {

enum class Strategy {
  // The fastest of the others for such calls, by rules and by the tuning table (docs/using.md). If
  // more than one strategy supports the configuration, only calls that all of them allow are legal:
  // one outstanding dispatch, no scatter_idx and no cached layouts.
  kAuto,
  kDirect,          // sends every (token, k) by itself
  kHighThroughput,  // computes all destination offsets first, then sends a token once per rank
  kLowLatency,      // sends a token once per rank, through a staging buffer
};
absl::Span<const EnumEntry<Strategy>> EnumTable(Strategy);  // names: octet/enum_names.h

// The order in which the outputs of a token's experts are added.
enum class CombineOrder {
  // The strategy's default: kFlat for direct, kPerRank for the others. With Strategy::kAuto, name
  // an order if results must not depend on the chosen strategy.
  kAuto,
  kFlat,     // by k; every output crosses the link by itself
  kPerRank,  // each rank adds the outputs of its experts and rounds; those sums are added by rank
  // Each node adds the outputs of its experts, in one of the orders above, and rounds; those sums
  // are added by node. Only for calls over several nodes (kernels/nodes).
  kPerNode,
};
absl::Span<const EnumEntry<CombineOrder>> EnumTable(CombineOrder);

// The format of dispatched rows. Combine always takes rows of EpConfig::dtype.
enum class DispatchFormat {
  kSame,   // [H] of the dtype
  kFp8,    // [H] of 8-bit floats that the caller has quantized, and the scales of their groups
  kBytes,  // HighThroughputOptions::row_bytes bytes
  // [H] of the dtype, which dispatch quantizes. Received rows are as with kFp8, in
  // EpConfig::fp8_form; each occupies a multiple of 16 bytes, and bytes beyond H have no meaning.
  kQuantizedFp8,
};
absl::Span<const EnumEntry<DispatchFormat>> EnumTable(DispatchFormat);

struct DispatchFormatInfo {
  DispatchFormat format;
  absl::string_view name;
  // The elements of x and of received rows: kSame are those of the dtype.
  GemmFormat sent;
  GemmFormat received;
  bool bytes;  // rows are bytes of no meaning instead
};
const DispatchFormatInfo& InfoOf(DispatchFormat format);

absl::Span<const EnumEntry<ScaleFormat>> EnumTable(ScaleFormat);  // octet/fp8_scale.h

// The layout of received rows.
enum class Output {
  kPackedExperts,  // a row for each choice: expert by expert, within it by (source rank, token)
  kDeduplicated,   // a row for each token, by (source rank, token), and its choices beside it;
                   // high_throughput only
  // As kPackedExperts, with room for the most rows of each expert: [L][R·M][H]; low_latency only.
  kExpertMajor,
  // A row for each choice: source rank by source rank, with room for the most rows of each,
  // [R][M·min(K, L)][H], within it by (expert, token); low_latency only.
  kRankMajor,
};
absl::Span<const EnumEntry<Output>> EnumTable(Output);

// How kPackedExperts stores a token that has chosen several experts of one rank.
enum class Duplicates {
  kFill,   // its row is copied to the position of each choice
  kIndex,  // its row is stored once, as with kDeduplicated; row_index names it
};
absl::Span<const EnumEntry<Duplicates>> EnumTable(Duplicates);

// How rows return to their origin.
enum class CombineMethod {
  kAuto,  // kPush if its memory is less than half of that of received rows, otherwise kPull
  kPush,  // the experts' rank stores them at the origin
  kPull,  // the origin loads them. Combine puts them into the memory of Received::x. The caller
          // must not write to it between a Combine and the next Dispatch: this rank's Combine can
          // end while peers are still loading
};
absl::Span<const EnumEntry<CombineMethod>> EnumTable(CombineMethod);

// How dispatch moves rows.
enum class RowCopies {
  kAuto,     // kVectors, which is faster on H200s with few blocks and with many
  kVectors,  // the lanes of a wave load and store 16 bytes each
  kBulk,     // the GPU's copy unit, if it has one, copies pieces through shared memory
};
absl::Span<const EnumEntry<RowCopies>> EnumTable(RowCopies);

// The outcome of a call if a rank is silent: its counts, rows or credits do not arrive within the
// deadline.
enum class FailurePolicy {
  kAbort,  // the call fails on all ranks, with a Status that says who waited for what
  // The ranks that waited for it mask it and continue without it: ExpertParallel, "Masks".
  // low_latency only. Each rank then has separate memory for the rows that return from each peer: R
  // rows for each token, R·min(K, L) with CombineOrder::kFlat.
  kMask,
};
absl::Span<const EnumEntry<FailurePolicy>> EnumTable(FailurePolicy);

// Options that only low_latency has.
struct LowLatencyOptions {
  FailurePolicy failure_policy = FailurePolicy::kAbort;
  // kMask: how long a call waits for a rank's data; it waits half as long for the rank's credit,
  // without which it may not send to that rank. At most the node's timeout. Zero: that timeout.
  absl::Duration mask_timeout = absl::ZeroDuration();
  // Count rows and measure waits: ExpertParallel::Statistics.
  bool statistics = false;

  bool operator==(const LowLatencyOptions&) const = default;
};

// Options that only high_throughput has.
struct HighThroughputOptions {
  Duplicates duplicates = Duplicates::kFill;
  // Each expert's first row is a multiple of this; padding rows are zero. kPackedExperts only.
  int expert_alignment = 1;
  int row_bytes = 0;  // DispatchFormat::kBytes: a multiple of 16
  // The number of layouts that every rank keeps: a handle stays usable for that many dispatches
  // that make a layout, its own included. A layout takes about 128 · R · M bytes at K up to 9.
  int kept_layouts = 1;
  // Dispatch waits on the host until this rank's totals are known (but not for the rows), and
  // returns them in Received. Otherwise nothing waits, and the caller knows Received::max_rows.
  bool host_totals = false;
  // Memory for dispatches whose rows announce their arrival one by one, 24 bytes for each of
  // max_rows: RoutedExperts needs it (octet/routed_experts.h). kPackedExperts, kFill and an
  // expert_alignment of 1 only.
  bool row_arrivals = false;

  bool operator==(const HighThroughputOptions&) const = default;
};

// Counting the rows that come to each expert: ExpertParallel::Loads.
struct LoadOptions {
  bool count = false;
  int window = 0;  // also over so many of the last dispatches, 0 .. 65536; not without `count`

  bool operator==(const LoadOptions&) const = default;
};

// The shape of the launches. 0 leaves the choice to the strategy; config() returns what it has
// chosen. Strategies ignore fields that they do not use.
struct Tuning {
  int blocks = 0;  // of a kernel that sends and receives
  // direct, and low_latency's dispatch: the number of those that send; the others receive.
  int send_blocks = 0;
  int waves_per_block = 0;
  // The pieces of a row, each sent by its own wave; high_throughput: in combine. low_latency: the
  // waves that together copy a received row to its positions.
  int row_parts = 0;
  // high_throughput: the number of a block's waves that send; the others receive. If all send, they
  // receive afterwards.
  int send_waves = 0;
  int combine_send_waves = 0;
  RowCopies row_copies = RowCopies::kAuto;  // high_throughput

  bool operator==(const Tuning&) const = default;
};

// How a sender determines the position of a row in the receiver's buffer.
enum class Slots {
  kPrefix,  // prefix sums over the routing: rows of one (expert, source) lie in token order
  kAtomic,  // atomic counters: rows of one (expert, source) lie in any order
};
absl::Span<const EnumEntry<Slots>> EnumTable(Slots);

// Which flags a receiver waits for.
enum class Flags {
  kToken,   // one for each (token, k): the receiver takes rows as they arrive
  kSource,  // one for each source rank, set after all of its rows
};
absl::Span<const EnumEntry<Flags>> EnumTable(Flags);

// Selects other protocols of a strategy for the same call. They exist to be compared with: whoever
// does not compare algorithms may skip this struct.
struct Variant {
  Slots slots = Slots::kPrefix;  // direct
  Flags flags = Flags::kToken;   // direct

  bool operator==(const Variant&) const = default;
};

struct EpConfig {
  // E, over all ranks; without a placement a multiple of num_ranks, and expert e lives on rank
  // e / (E / num_ranks).
  int num_experts = 0;
  int topk = 0;                 // K, 1 .. min(32, E)
  int hidden = 0;               // H, elements of a row; a multiple of 8
  int max_tokens_per_rank = 0;  // M, the most tokens that a rank may pass to Dispatch
  DType dtype = DType::kBFloat16;
  Strategy strategy = Strategy::kAuto;
  CombineOrder combine_order = CombineOrder::kAuto;
  CombineMethod combine_method = CombineMethod::kAuto;
  // What is dispatched and how it is received. direct supports the defaults, high_throughput
  // all but kQuantizedFp8, kExpertMajor and kRankMajor, and low_latency kSame and kQuantizedFp8 and
  // all outputs but kDeduplicated.
  DispatchFormat dispatch_format = DispatchFormat::kSame;
  Output output = Output::kPackedExperts;
  ScaleFormat scale_format = ScaleFormat::kFloat32;  // octet/fp8_scale.h
  int scale_group = 128;                // columns that share a scale; kQuantizedFp8: 64, 128 or 256
  Fp8Form fp8_form = Fp8Form::kNative;  // kQuantizedFp8: must be the platform's
  // The most blocks of a launch, so that the rest of the GPU can compute; 0: all.
  int max_blocks = 0;

  // Options that a single strategy has. Setting one restricts the configuration to that strategy:
  // another one is refused, and Strategy::kAuto chooses that one.
  LowLatencyOptions low_latency = {};
  HighThroughputOptions high_throughput = {};
  Variant variant = {};

  Tuning tuning = {};

  // Which expert lives where; empty: see num_experts. Routing names logical experts all the same.
  // Received rows and the experts of a rank are described by slot: L is the number of slots, and
  // there is nothing for free ones. With CombineOrder::kFlat y does not depend on the placement.
  Placement placement = {};

  // The most rows, padding included, that a rank has memory for in a dispatch; 0: as many as it can
  // receive at all, R·M·min(K, L), of which even routing fills the max(K, L) / (R·L)-th part or
  // less. A dispatch that would bring more to any rank fails on all of them with kInvalidArgument,
  // which names the rank, its rows and this number; no row has moved by then, and after the Run
  // that returns the error calls and graphs work as before. high_throughput on one node only, which
  // exchanges all counts before the first row; kPackedExperts with kFill only.
  int capacity_rows = 0;
  LoadOptions loads = {};  // within a node

  // L: the experts of a rank; with a placement its slots.
  int num_local_experts(int num_ranks) const {
    return placement.empty() ? num_experts / num_ranks : placement.slots_per_rank();
  }
  // Whether a rank receives a token once, however many of its experts the token has chosen.
  bool rows_once() const {
    return output == Output::kDeduplicated || high_throughput.duplicates == Duplicates::kIndex;
  }
  // Whether rows lie apart, with room for the most rows of each expert or source rank.
  bool rows_apart() const { return output == Output::kExpertMajor || output == Output::kRankMajor; }
  // The most rows in expert order that a rank receives, padding included: Received::max_rows.
  int max_rows(int num_ranks) const;
  // Rows of CombineArgs::expert_out that a rank needs memory for, [hidden] of the dtype each:
  // max_rows, or with kDeduplicated one for each token of each rank.
  int expert_out_rows(int num_ranks) const;
  size_t dtype_row_bytes() const;     // of [hidden] of the dtype: a row of expert_out or y
  size_t dispatch_row_bytes() const;  // of a row of x
  size_t received_row_bytes() const;  // of a row of Received::x
  int scale_words() const;            // 4-byte words of a received row of scales; 0: none
  int x_scale_words() const;          // of a row of x
  // Returns the format of received rows as an operand of a product. Rows of kBytes are none.
  GemmFormat received_format() const;
};

inline constexpr int kMaxTopk = 32;
inline constexpr int kMaxExperts = 2048;
inline constexpr int kMaxHidden = 65536;
inline constexpr int kMaxTokensPerRank = 65536;
inline constexpr int kMaxRowParts = 32;
inline constexpr int kMaxRowBytes = 2 * kMaxHidden;
inline constexpr int kMaxExpertAlignment = 1024;
inline constexpr int kMaxKeptLayouts = 1024;
inline constexpr int kMaxLoadWindow = 65536;
// Limits of low_latency.
inline constexpr int kMaxLowLatencyTokens = 1024;
inline constexpr int kMaxLowLatencyExperts = 1024;
inline constexpr int kMaxLowLatencyHidden = 16384;

// Returns kInvalidArgument with the field, its value and what it must be, or OK. With
// Strategy::kAuto and no strategy that supports the configuration: why each of them does not.
absl::Status Validate(const EpConfig& config, int num_ranks);

}  // namespace octet

#endif  // OCTET_EP_CONFIG_H_
