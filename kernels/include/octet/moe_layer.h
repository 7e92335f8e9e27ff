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
// Notation in the comments: P nodes, R ranks over all of them, E experts, M most tokens of a rank,
// T tokens of a call, K choices of a token, H elements of a row.
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
#include "octet/routed_experts.h"
#include "octet/router.h"

namespace octet {

// When the shared experts of a call are computed.
enum class SharedExperts {
  kAuto,   // kBeside for at most 1024 tokens of a rank and without fusion, otherwise kAfter
  kAfter,  // after combine, on the rank's stream
  // On a stream of the layer's own: the first product from when the router is done, beside dispatch
  // and what follows; the second beside combine.
  kBeside,
};

struct MoeLayerConfig {
  int num_experts = 0;          // E, over all ranks; expert e lives on rank e / (E / R)
  int topk = 0;                 // K
  int hidden = 0;               // H, a multiple of 8
  int intermediate = 0;         // of an expert, a multiple of 8
  int shared_intermediate = 0;  // of all shared experts together, a multiple of 8; 0: none
  bool shared_gate = false;     // multiply the shared experts' output by sigmoid(shared_gate · x)
  RouterConfig router = {};

  int max_tokens_per_rank = 0;     // M
  DType dtype = DType::kBFloat16;  // of x, y and what lies between
  // The elements of the experts' weights. kFp8 needs dtype kBFloat16: x and the rows between the
  // two products are then quantized in groups of 128 columns, low_latency quantizing x on the way,
  // and H and both intermediates must be multiples of 16. Router and shared experts have the dtype.
  GemmFormat weights = GemmFormat::kSame;
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

  bool operator==(const MoeLayerConfig&) const = default;
};

// Returns kInvalidArgument with the member, its value and what it must be, or OK.
absl::Status Validate(const MoeLayerConfig& config, int num_ranks);

absl::Span<const EnumEntry<SharedExperts>> EnumTable(SharedExperts);  // octet/enum_names.h

class LayerPartObserver;  // kernels/ep/layer_parts.h
class MoeLayer;

struct MoeLayerOptions {
  // A layer of the same domain and an equal configuration, whose memory for everything but weights
  // this layer uses, too. Their calls must then follow each other on each rank's stream; what
  // Routed() returned for one is void after a call of the other. nullptr: memory of its own.
  const MoeLayer* share = nullptr;
  // ExpertParallelOptions::name. Layers that share memory have names of their own.
  std::string name = {};
  // How a layer over several nodes uses the rails.
  RailOptions rails = {};
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
  // Over several nodes: collective, as ExpertParallel::Create, and expert e lives on rank r of node
  // n with n·R/P + r = e / (E / R). Load is not collective: every process loads the same weights,
  // of which its ranks keep their own experts; call Forward when all of them have. With
  // RailRows::kCounted, Forward cannot be captured.
  static absl::StatusOr<std::unique_ptr<MoeLayer>> Create(Domain& domain,
                                                          const MoeLayerConfig& config,
                                                          const MoeLayerOptions& options = {});
  virtual ~MoeLayer() = default;

  // Converts `weights` to the configuration's types and copies them to the GPUs: each rank its own
  // experts, and all ranks router and shared experts. Not during Node::Run. kInvalidArgument,
  // naming the tensor, for one that is missing or has another shape. `weights` may be freed
  // afterwards. If it fails after it has begun to copy, the layer is not loaded, even if it was.
  virtual absl::Status Load(const MoeLayerWeights& weights) = 0;

  // y = layer(x). Enqueues on rank.stream() and returns. Every rank calls it, in the order of all
  // calls of the node (ExpertParallel); num_tokens, 0 .. M, may differ. x and y, [T][H] of the
  // dtype, are memory of the rank's GPU, 16-byte aligned; they must not overlap. May be captured
  // into a graph. kFailedPrecondition before Load; kInvalidArgument if x and y overlap.
  virtual absl::Status Forward(Rank& rank, const void* x, int num_tokens, void* y) = 0;

  virtual RoutedTokens Routed(const Rank& rank) const = 0;

  // Returns the configuration with every choice made.
  virtual const MoeLayerConfig& config() const = 0;

 private:
  friend struct LayerInternals;  // kernels/ep/layer_parts.h

  virtual void Observe(LayerPartObserver* observer) = 0;
};

}  // namespace octet

#endif  // OCTET_MOE_LAYER_H_
