// The experts of a Mixture-of-Experts layer together with the dispatch before them and the combine
// after them:
//
//   DispatchGemm   h[row] = activation(x[token] · w1[expert]ᵀ)   for every row received
//   GemmCombine    y[token] = Σ_k weight · (h[row] · w2[expert]ᵀ)
//
//   absl::StatusOr<std::unique_ptr<RoutedExperts>> experts = RoutedExperts::Create(node, config);
//   node.Run([&](Rank& rank) -> absl::Status {
//     absl::StatusOr<FusedReceived> received =
//         (*experts)->DispatchGemm(rank, {.dispatch = {.x = x, ...}, .b = w1, .out = h});
//     if (!received.ok()) return received.status();
//     return (*experts)->GemmCombine(rank, *received, {.a = h, .b = w2, .y = y});
//   });
//
// A call is one kernel or several (Fusion). The results are those of Dispatch, two GroupedGemms
// whose out has the dtype, and Combine, one after the other, to the bit; what quantizes h for a
// second product of FP8 operands comes before it.
//
// Notation in the comments: R ranks, E experts, L = E/R local experts, T tokens of a rank, K
// choices of a token, H elements of a row, I = RoutedExpertsConfig::intermediate, N1 = 2·I with
// kSwiGlu and I without.
#ifndef OCTET_ROUTED_EXPERTS_H_
#define OCTET_ROUTED_EXPERTS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/gemm_tiles.h"
#include "octet/grouped_gemm.h"
#include "octet/node.h"
#include "octet/received.h"
#include "octet/symmetric_heap.h"

namespace octet {

class LayerPartObserver;  // kernels/ep/layer_parts.h

// How the kernels of a call are put together.
enum class Fusion {
  // The fastest of the others for such calls, of those that fit. What it comes to changes nothing
  // that is allowed, and no results.
  kAuto,
  kNone,  // kernels of their own, one after the other
  // One kernel. DispatchGemm: a tile of the product starts when its rows have arrived, while others
  // are under way. GemmCombine: outputs of the first columns leave while the product of later ones
  // is computed.
  kTiles,
  // GemmCombine in one kernel, without such overlap: all tiles of the product, then combine.
  kSerial,
  // GemmCombine in one kernel whose product stores each row straight into the memory of its
  // token's origin, so that rows cross the links while others are multiplied. Every choice's row
  // crosses: where several choices of a token are on one rank, kTiles sends fewer bytes.
  kEpilogue,
};

// Where the choices' weights (DispatchArgs::topk_weights) are multiplied in.
enum class WeightsIn {
  kCombine,  // the sums of GemmCombine are weighted
  // h is weighted (with kSwiGlu: `up`), and GemmCombine adds. ep.strategy must be kHighThroughput.
  kFirstProduct,
};

// The order in which a DispatchGemm sends its rows.
enum class SendOrder {
  kExpert,  // by expert, so that the first experts of all ranks have their rows early
  kToken,   // by token
};

// What a tile of a DispatchGemm waits for.
enum class TileWaits {
  kGroup,   // the groups of rows that it reads
  kExpert,  // all rows of its expert
};

// How the kernel of a call of Fusion::kTiles, kSerial or kEpilogue divides its work. Results do not
// depend on it. 0 and nullopt: what was measured to be fast for such calls on this GPU, if it was
// (docs/using.md), otherwise the built-in choice; config() returns what was chosen. Calls ignore
// what they do not use.
struct FusedTuning {
  std::optional<GemmTiles> tiles = std::nullopt;  // kWide or kMedium
  // DispatchGemm: the percentages of the blocks that send rows and that complete rows before they
  // multiply. At least one block does each. Where waves of all blocks do so beside the product, as
  // on NVIDIA GPUs with 16-bit rows, few are enough.
  int send_percent = 0;
  int fill_percent = 0;
  // GemmCombine with kTiles and kEpilogue: that combine from the start; with kEpilogue 0 means
  // none. At least one block multiplies.
  int combine_percent = 0;
  // GemmCombine with kTiles and kEpilogue: the parts of a row, each of which leaves, or is summed,
  // when its columns are there. EpConfig::tuning has it, too, and comes first.
  int row_parts = 0;
  // DispatchGemm, built-in: kExpert, kGroup and 2. The others are there to be compared with.
  std::optional<SendOrder> send_order = std::nullopt;
  std::optional<TileWaits> tile_waits = std::nullopt;
  // 2: a token's elements cross the link once for each of its ranks, and are copied there to the
  // rows of its other choices. 1: they cross for each choice.
  int stages = 0;
};

struct RoutedExpertsConfig {
  // Output::kPackedExperts, Duplicates::kFill, dispatch_format kSame, kFp8 or kQuantizedFp8, and at
  // most 256 local experts. With the latter two the first product has FP8 rows, of GemmFormat::kFp8
  // or first_format: H must be a multiple of 16, scale_group 128 and dtype kBFloat16, which h has,
  // and x of kFp8 must be of the platform's form (Fp8Form::kNative).
  EpConfig ep;
  int intermediate = 0;  // I, a multiple of 8
  // GroupedGemmConfig::blocks of products that are kernels of their own; nullopt: ep.max_blocks.
  std::optional<int> product_blocks = std::nullopt;
  GemmActivation activation = GemmActivation::kSwiGlu;
  SwiGlu swiglu = {};  // GroupedGemmConfig::swiglu; others than the defaults need kCombine
  // The elements of DispatchGemmArgs::b, if they are not those of the rows: kMxfp4, for which H
  // must be a multiple of 32, and dispatch_gemm kAuto or kNone. Rows that are received in FP8 are
  // multiplied as they are (GroupedGemmConfig::fp8_rows).
  GemmFormat first_format = GemmFormat::kSame;
  // The elements of GemmCombineArgs::b. kFp8: GemmCombine first quantizes the rows of `a` in groups
  // of 128 columns, as DispatchFormat::kQuantizedFp8 does, and the second product is one of FP8
  // operands with scales of ep.scale_format, whatever ep.dispatch_format is. ep.dtype must be
  // kBFloat16, I a multiple of 16, and gemm_combine kAuto or kNone. Takes memory for max_rows rows
  // of I bytes and their scales. kMxfp4: the rows stay as they are; I must be a multiple of 32, and
  // the rest likewise.
  GemmFormat second_format = GemmFormat::kSame;
  // With the second_format kMxfp4: GemmCombine quantizes the rows of `a` as for kFp8, with as much
  // memory, and the second product has GroupedGemmConfig::fp8_rows.
  bool second_fp8_rows = false;
  WeightsIn weights_in = WeightsIn::kCombine;
  // Not kSerial or kEpilogue. kTiles needs high_throughput with expert_alignment 1 and without
  // host_totals, and calls without scatter_idx and cached layouts. It sets
  // HighThroughputOptions::row_arrivals. kAuto takes what was measured to be the fastest for such
  // calls of high_throughput, if ExpertParallelOptions::heap and the GPUs have room for it, and
  // otherwise kNone. A call with scatter_idx or a cached layout is then made of separate kernels;
  // all ranks of it, or none, must have a scatter_idx.
  Fusion dispatch_gemm = Fusion::kAuto;
  // kTiles, kSerial and kEpilogue need ep.strategy kHighThroughput. With kTiles a row returns in
  // parts, by default of 512 columns, at most four; with kEpilogue by default in one. kEpilogue
  // needs ep.combine_order kFlat and ep.combine_method kPush, which kAuto becomes. kAuto as above.
  // For one kernel of a call, the shared memory of a block may have room for fewer local experts
  // than 256, with kMedium for more than with kWide: Create tells.
  Fusion gemm_combine = Fusion::kAuto;
  FusedTuning dispatch_gemm_tuning = {};
  FusedTuning gemm_combine_tuning = {};
};

// All pointers are memory of the rank's own GPU, 16-byte aligned, owned by the caller.
struct DispatchGemmArgs {
  DispatchArgs dispatch;
  // [L][N1][H] of the dtype, or of the elements of FP8 rows or first_format: GroupedGemmArgs::b.
  const void* b = nullptr;
  const void* b_scales = nullptr;  // GroupedGemmArgs::b_scales; null if b has none
  const float* bias = nullptr;     // [L][N1], or null
  // h, [EpConfig::max_rows(R)][I] of config.ep.dtype, in expert order. Padding between the experts,
  // and what follows the last row, is not written. Overlaps nothing else.
  void* out = nullptr;
};

// Valid in stream order until the rank's next dispatch, with low_latency until the one after that
// (octet/received.h), plain dispatches of RoutedExperts::ep() among them.
struct FusedReceived {
  Received received;        // GemmCombine overwrites the rows, received.x
  const void* h = nullptr;  // DispatchGemmArgs::out
};

// Pointers as in DispatchGemmArgs.
struct GemmCombineArgs {
  // [max_rows][I] of the dtype: usually FusedReceived::h, never received.x.
  const void* a = nullptr;
  // [L][H][I] of the dtype, or of second_format: GroupedGemmArgs::b.
  const void* b = nullptr;
  // GroupedGemmArgs::b_scales; null if b has none.
  const void* b_scales = nullptr;
  const float* bias = nullptr;   // [L][H], added to each expert's output; or null
  const void* y_bias = nullptr;  // [H] of the dtype: CombineArgs::bias
  void* y = nullptr;             // [T][H] of the dtype; overlaps nothing else
};

// Threads, order, graphs and errors are those of ExpertParallel's calls: a
// DispatchGemm counts as a Dispatch, a GemmCombine as a Combine. A call that is refused
// for its arguments or its place in the order has enqueued nothing.
class RoutedExperts {
 public:
  // With ExpertParallelOptions::trace, products record, too, and the collector must have this many
  // tracks. Blocks that it has no memory for are missing; results stay the same to the bit.
  static constexpr int kTraceTracks = 3;

  // Allocates everything that the calls need. kInvalidArgument, naming the member, for what the
  // comments above exclude; kUnimplemented, with the bytes, if a GPU has too little shared memory
  // for a fusion that is named; the errors of ExpertParallel::Create and GroupedGemm::Create.
  //
  // Over several nodes collective, as ExpertParallel::Create. Both fusions must be kAuto or kNone,
  // which are the same there.
  static absl::StatusOr<std::unique_ptr<RoutedExperts>> Create(
      Domain& domain, const RoutedExpertsConfig& config, const ExpertParallelOptions& options = {});
  virtual ~RoutedExperts() = default;

  // Returns the bytes of each kind of a symmetric heap that suffice on every rank, as
  // ExpertParallel::HeapBytes does: for everything that kAuto may come to. Fusions take more than
  // separate kernels, for which ExpertParallel::HeapBytes(config.ep) is enough, and kAuto becomes
  // those in a heap of that size.
  static absl::StatusOr<HeapSize> HeapBytes(const RoutedExpertsConfig& config, int num_ranks);

  // Returns the configuration with every choice made.
  virtual const RoutedExpertsConfig& config() const = 0;
  // The dispatch and combine in use, for calls without a product.
  virtual ExpertParallel& ep() = 0;

  // Returns what `rank` sends in a DispatchGemm of this routing ([T][K] ids), as
  // ExpertParallel::DispatchTraffic does. A GemmCombine sends what ep().CombineTraffic says.
  virtual Traffic DispatchGemmTraffic(int rank, absl::Span<const int32_t> topk_idx) const = 0;

  virtual absl::StatusOr<FusedReceived> DispatchGemm(Rank& rank, const DispatchGemmArgs& args) = 0;
  // `received` must be valid; its `received` may also be what ep()'s Dispatch returned. Combines
  // each DispatchGemm once, since the rows of the first product and, with CombineMethod::kPull,
  // what peers are still loading lie in the same memory.
  virtual absl::Status GemmCombine(Rank& rank, const FusedReceived& received,
                                   const GemmCombineArgs& args) = 0;

 private:
  friend struct LayerInternals;  // kernels/ep/layer_parts.h

  virtual void Observe(LayerPartObserver* observer) = 0;
  // DispatchGemm with DispatchRequest::may_lack_room (kernels/ep/ep_calls.h).
  virtual absl::StatusOr<FusedReceived> DispatchGemmIfRoom(Rank& rank,
                                                           const DispatchGemmArgs& args) = 0;
};

absl::Span<const EnumEntry<Fusion>> EnumTable(Fusion);  // names: octet/enum_names.h
absl::Span<const EnumEntry<WeightsIn>> EnumTable(WeightsIn);
absl::Span<const EnumEntry<SendOrder>> EnumTable(SendOrder);
absl::Span<const EnumEntry<TileWaits>> EnumTable(TileWaits);

}  // namespace octet

#endif  // OCTET_ROUTED_EXPERTS_H_
