// A whole Mixture-of-Experts layer, from a token's row to the layer's output for it:
//
//   y[t] = Σ_k weight[t][k] · expert[topk_idx[t][k]](x[t])  +  gate(x[t]) · shared(x[t])
//
// where the router computes topk_idx and weight from x[t] (octet/router.h), and an expert is a
// gated network, down · (silu(gate · x) ⊙ (up · x)).
//
//   auto layer = MoeLayer::Create(node, config);
//   absl::Status status = (*layer)->Load(weights);
//   node.Run([&](Rank& rank) { return (*layer)->Forward(rank, x, num_tokens, y); });
//
// Over the nodes of a World the program is the same, on `world` in place of `node`.
//
// Notation in the comments: P nodes, R ranks over all of them, E experts, L experts of a rank, M
// most tokens of a rank, T tokens of a call, K choices of a token, H elements of a row.
#ifndef OCTET_MOE_LAYER_H_
#define OCTET_MOE_LAYER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/dtype.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/grouped_gemm.h"
#include "octet/moe_weights.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "octet/routed_experts.h"
#include "octet/router.h"
#include "octet/trace.h"

namespace octet {

// When the shared experts of a call are computed.
enum class SharedExperts {
  kAuto,   // kBeside for at most 1024 tokens of a rank and without fusion, otherwise kAfter
  kAfter,  // after combine, on the rank's stream
  // On a stream of the layer's own: the first product from when the router is done, beside dispatch
  // and what follows; the second beside combine.
  kBeside,
};

// How a layer is computed.
enum class LayerPath {
  kAuto,      // as measured: kDecode where all ranks together have few tokens (config() tells)
  kLaunches,  // router, dispatch, products and combine as kernels of their own
  // The whole layer in one kernel of each GPU, bound by reading the weights of the chosen experts
  // once. A token's y is the same to the bit whatever other tokens there are, whatever their number
  // and its place among them, and for any max_blocks; where experts have replicas, its place (rank
  // and number there) says which of them it goes to, and thus in which order y is added. FP8
  // weights are multiplied with x and the rows between the products in the dtype, which is more
  // exact than kLaunches. Needs one node, at most 64 tokens of all ranks together
  // (max_tokens_per_rank · R), at most 512 experts, no expert_biases or swiglu with kFp8, and
  // fusion kAuto or kNone; `strategy` and `shared_experts` mean nothing.
  kDecode,
};

struct MoeLayerConfig {
  int num_experts = 0;          // E, over all ranks; without a placement, a multiple of R
  int topk = 0;                 // K
  int hidden = 0;               // H, a multiple of 8
  int intermediate = 0;         // of an expert, a multiple of 8
  int shared_intermediate = 0;  // of all shared experts together, a multiple of 8; 0: none
  bool shared_gate = false;     // multiply the shared experts' output by sigmoid(shared_gate · x)
  RouterConfig router = {};
  bool logit_bias = false;     // add MoeLayerWeights::logit_bias to the logits
  bool expert_biases = false;  // the experts' products, but not the shared ones', have biases
  SwiGlu swiglu = {};          // what experts, but not shared ones, make of gate and up

  int max_tokens_per_rank = 0;     // M
  DType dtype = DType::kBFloat16;  // of x, y and what lies between
  // The elements of the experts' weights. kFp8 needs dtype kBFloat16: x and the rows between the
  // two products are then quantized in groups of 128 columns, low_latency quantizing x on the way,
  // and H and both intermediates must be multiples of 16. kMxfp4 likewise needs kBFloat16, and H
  // and `intermediate` must be multiples of 32. Router and shared experts have the dtype.
  GemmFormat weights = GemmFormat::kSame;
  // With weights kMxfp4: kLaunches quantizes x and the rows between the two products as for kFp8,
  // which is less exact and, where it was measured, faster (GroupedGemmConfig::fp8_rows).
  // kDecode multiplies rows of the dtype all the same.
  bool fp8_rows = false;
  LayerPath path = LayerPath::kAuto;
  // How tokens are sent, and how the kernels of a call are put together (octet/routed_experts.h).
  Strategy strategy = Strategy::kAuto;
  // kTiles and kSerial need the strategy kHighThroughput, which kAuto then becomes, and weights
  // kSame. Not kEpilogue.
  Fusion fusion = Fusion::kAuto;
  int max_blocks = 0;  // EpConfig::max_blocks, and the most blocks of each product
  SharedExperts shared_experts = SharedExperts::kAuto;
  // The most blocks of dispatch and combine, so that shared experts beside them find compute units;
  // 0: max_blocks; or, where kAuto becomes kBeside with high_throughput, half of the compute units.
  // At most max_blocks, if that is given.
  int link_blocks = 0;
  // Which expert lives where, on all ranks; empty: expert e on rank e / (E / R). Each rank has
  // memory for the weights of its slots, free ones included. The router, its results and the
  // weights that Load takes are those of logical experts all the same. At most 256 slots of a rank.
  Placement placement = {};

  // L; with a placement the slots of a rank.
  int num_local_experts(int num_ranks) const {
    return placement.empty() ? num_experts / num_ranks : placement.slots_per_rank();
  }
  // EpConfig::capacity_rows: rows that a rank has memory for between dispatch and combine; 0: all
  // that it can receive. With it, at least R·min(M, 4)·min(K, L). A call that brings more rows to a
  // rank takes its tokens in several passes, as many on all ranks, cut between tokens; y is the
  // same to the bit, since no result for a token depends on others. If one pass is enough, the call
  // has the launches of one without a capacity, and Forward waits on the host until the ranks have
  // counted, with the products already enqueued, so that GPUs wait for nothing. If not, a dispatch
  // without rows and an empty product come before the passes. A captured call is one pass: a replay
  // that needs more fails as EpConfig::capacity_rows says. kLaunches on one node, which kAuto then
  // becomes, with the strategy kHighThroughput.
  int capacity_rows = 0;
  LoadOptions loads = {};  // MoeLayer::Loads; within a node
  // A token's weight multiplies x, rounded to the dtype, before its expert takes it, and not what
  // the expert makes of it. Needs topk 1; kLaunches, which kAuto then becomes.
  bool weighs_input = false;

  bool operator==(const MoeLayerConfig&) const = default;
};

// Returns kInvalidArgument with the member, its value and what it must be, or OK.
absl::Status Validate(const MoeLayerConfig& config, int num_ranks);

absl::Span<const EnumEntry<SharedExperts>> EnumTable(SharedExperts);  // octet/enum_names.h
absl::Span<const EnumEntry<LayerPath>> EnumTable(LayerPath);

class LayerPartObserver;  // kernels/ep/layer_parts.h
class MoeLayer;

struct MoeLayerOptions {
  // A layer of the same domain and an equal configuration, whose memory for everything but weights
  // this layer uses, too. Their placements may differ if both have as many slots. Their calls must
  // then follow each other on each rank's stream; what Routed() returned for one is void after a
  // call of the other. nullptr: memory of its own.
  const MoeLayer* share = nullptr;
  // ExpertParallelOptions::name. Layers that share memory have names of their own.
  std::string name = {};
  // How a layer over several nodes uses the rails.
  RailOptions rails = {};
  // LayerPath::kDecode: each block records its phases here (kernels/decode/decode_trace.h); must
  // outlive the layer, and any that shares its memory. nullptr: not traced.
  TraceCollector* trace = nullptr;
};

// The router's results of a rank's last Forward, valid in stream order until the next one. Memory
// of the rank's GPU.
struct RoutedTokens {
  const float* logits = nullptr;  // [T][stride], the first E of each row
  int stride = 0;
  const int32_t* topk_idx = nullptr;    // [T][K]
  const float* topk_weights = nullptr;  // [T][K]
};

class MoeLayer {
 public:
  // Allocates everything that calls need, and loads all kernels. Not during Node::Run.
  // kInvalidArgument for Validate(config) and options; the errors of RoutedExperts::Create and
  // GroupedGemm::Create.
  //
  // Over several nodes: collective, as ExpertParallel::Create. Rank r of node n is rank n·R/P + r
  // of a placement, and expert e lives on that with n·R/P + r = e / (E / R) without one. Load is
  // not collective: every process loads the same weights, of which its ranks keep their own
  // experts; call Forward when all of them have. With RailRows::kCounted, Forward cannot be
  // captured.
  static absl::StatusOr<std::unique_ptr<MoeLayer>> Create(Domain& domain,
                                                          const MoeLayerConfig& config,
                                                          const MoeLayerOptions& options = {});
  virtual ~MoeLayer() = default;

  // Converts `weights` to the configuration's types and copies them to the GPUs: each rank its own
  // experts, of which replicas have copies, and all ranks router and shared experts. Not during
  // Node::Run. kInvalidArgument, naming the tensor, for one that is missing, has another shape or
  // may not be there. `weights` may be freed afterwards. If it fails after it has begun to copy,
  // the layer is not loaded, even if it was.
  virtual absl::Status Load(const MoeLayerWeights& weights) = 0;

  // y = layer(x). Enqueues on rank.stream() and returns. Every rank calls it, in the order of all
  // calls of the node (ExpertParallel); num_tokens, 0 .. M, may differ. x and y, [T][H] of the
  // dtype, are memory of the rank's GPU, 16-byte aligned; they must not overlap. May be captured
  // into a graph. kFailedPrecondition before Load; kInvalidArgument if x and y overlap.
  virtual absl::Status Forward(Rank& rank, const void* x, int num_tokens, void* y) = 0;

  // The same, with the number of tokens in memory of the rank's GPU when the call runs: a graph
  // then serves every number. Numbers outside of 0 .. max_tokens become the nearer of the two.
  // kUnimplemented unless config().path is kDecode.
  virtual absl::Status Forward(Rank& rank, const void* x, const int32_t* num_tokens, void* y) = 0;

  virtual RoutedTokens Routed(const Rank& rank) const = 0;

  // Begins to copy experts to where `placement` has them, on a stream of the layer's own, while
  // calls go on by the placement in force: each from a rank that has it into a free slot. Experts
  // that stay on a rank keep their slots, so that only the ranks in `placement` count; it may have
  // fewer slots than the layer's. `max_blocks`: 0: the GPU's copy engines make the copies, and take
  // nothing from calls but bandwidth; otherwise blocks of a kernel do, at most so many on each GPU.
  // Every rank calls it with an equal placement, in the order of all calls of the node; Apply comes
  // next. The copies may outlast the Run.
  //
  // Refused before anything is launched:
  //   kInvalidArgument     a placement of other experts or ranks, or one for which a rank has too
  //                        few free slots: PlanMoves returns those to come to first
  //   kFailedPrecondition  before Load, or before the Apply of another Prepare; into a graph
  //   kUnimplemented       a layer without a placement, or over several nodes
  virtual absl::Status Prepare(Rank& rank, const Placement& placement, int max_blocks) = 0;
  // Makes the rank's later calls go by the placement of the last Prepare, replays of graphs that
  // were captured before included. Enqueues on rank.stream(), where later work waits until all
  // ranks' copies are done. Every rank calls it, in the order of all calls of the node, and all
  // ranks switch between the same calls.
  //
  // After a Run that failed, calls go by the new placement if all ranks had come to the end of
  // their copies in stream order, otherwise by the old one: on all ranks the same, and Prepare has
  // to begin anew. kFailedPrecondition without a Prepare; into a graph.
  virtual absl::Status Apply(Rank& rank) = 0;
  // Returns the placement by which the rank's next call goes: that of the configuration until the
  // first Apply. Called on the rank's thread, or not during Run.
  virtual Placement PlacementOf(const Rank& rank) const = 0;

  // Any thread: the rows that have come to each expert, as ExpertParallel::Loads has them, wherever
  // it has been. Layers that share memory are counted together, and each pass of a call as a
  // dispatch.
  // kFailedPrecondition without MoeLayerConfig::loads.count.
  virtual absl::StatusOr<ExpertLoads> Loads() const = 0;

  // Returns the configuration with every choice made. Its placement is the first one.
  virtual const MoeLayerConfig& config() const = 0;

 private:
  friend struct LayerInternals;  // kernels/ep/layer_parts.h

  virtual void Observe(LayerPartObserver* observer) = 0;
};

}  // namespace octet

#endif  // OCTET_MOE_LAYER_H_
