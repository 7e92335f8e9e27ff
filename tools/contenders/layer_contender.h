// A whole layer's experts as commonly written on top of other libraries: rows sorted by expert and
// exchanged by a RowTransport's all-to-all (sorted_exchange.h), whose counts the host waits for,
// and a vendor's library for the products of each expert, with a kernel for SwiGLU between them.
#ifndef OCTET_TOOLS_CONTENDERS_LAYER_CONTENDER_H_
#define OCTET_TOOLS_CONTENDERS_LAYER_CONTENDER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"
#include "octet/node.h"
#include "tools/contenders/contender.h"

namespace octet {

// The libraries by the names that they have among MakeContenders and MakeGemmContenders.
struct LayerLibraries {
  std::string exchange;  // "nccl"
  std::string products;  // "cublas_streams"

  std::string name() const { return exchange + "+" + products; }
};

// Parses "nccl+cublas_streams". kInvalidArgument for what has not this form; says nothing about
// whether there are such libraries.
absl::StatusOr<LayerLibraries> ParseLayerLibraries(absl::string_view name);

// A call's tokens, memory of the rank's GPU.
struct ContenderTokens {
  const void* x;        // [T][H]
  int count;            // T
  RoutedTokens routed;  // what the router has decided about them
  void* y;              // [T][H]
};

class LayerContender {
 public:
  // Allocates what calls need. `platform`: whose libraries multiply (Topology::platform).
  // kUnavailable for a library that this platform, build or machine lacks; kUnimplemented for a
  // configuration that it does not support; kInvalidArgument for a name that none has, or one that
  // cannot be part of a layer. Not during Node::Run. The node must outlive it.
  static absl::StatusOr<std::unique_ptr<LayerContender>> Create(Node& node,
                                                                const MoeLayerConfig& config,
                                                                const LayerLibraries& libraries,
                                                                absl::string_view platform);
  virtual ~LayerContender() = default;

  // Copies the weights to the GPUs, as MoeLayer::Load does. Not during Node::Run.
  virtual absl::Status Load(const MoeLayerWeights& weights) = 0;

  // y = layer(x) but for the router. Enqueues on rank.stream(); waits on the host for the counts.
  // All ranks call it. A rank's first call also waits before each product and must have the rows of
  // those that are timed, so that libraries load their kernels then.
  virtual absl::Status Forward(Rank& rank, const ContenderTokens& tokens) = 0;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_LAYER_CONTENDER_H_
