// Layers for a few tokens, in one launch on each GPU: host side. decode.hip says how.
#ifndef OCTET_KERNELS_DECODE_DECODE_PATH_H_
#define OCTET_KERNELS_DECODE_DECODE_PATH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/decode/kernels.h"
#include "kernels/ep/base/load_counting.h"
#include "kernels/placement/kernels.h"
#include "octet/expert_parallel.h"
#include "octet/memory_piece.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "octet/trace.h"
#include "runtime/failure/flag_table.h"
#include "runtime/memory/node_memory.h"
#include "runtime/node/capture_need.h"
#include "runtime/node/node_client.h"

namespace octet {

// Returns kInvalidArgument with the member, its value and what it must be, if layers of this
// configuration, which is valid otherwise, cannot be computed in one launch; or OK.
absl::Status CheckDecodes(const MoeLayerConfig& config, int num_ranks);

// The memory and the kernel of such layers on a node. Layers can share it if their calls follow
// each other on each rank's stream.
class DecodePath final : private NodeClient {
 public:
  // Not during Node::Run. Loads the kernel on all ranks. Returns kUnimplemented with the rank and
  // the bytes if blocks there cannot have the shared memory that this configuration needs; or OK.
  static absl::Status CheckFits(Node& node, const MoeLayerConfig& config);
  // Likewise. `trace`: MoeLayerOptions::trace.
  static absl::StatusOr<std::unique_ptr<DecodePath>> Create(Node& node,
                                                            const MoeLayerConfig& config,
                                                            TraceCollector* trace);
  ~DecodePath() override;
  DecodePath(const DecodePath&) = delete;
  DecodePath& operator=(const DecodePath&) = delete;

  // A layer's weights on a rank, as MoeLayer keeps them.
  struct Weights {
    const void* router = nullptr;
    const float* router_bias = nullptr;
    const float* logit_bias = nullptr;  // or none
    decode::Matrices routed = {};
    decode::Matrices shared = {};
  };
  struct Call {
    const void* x = nullptr;
    int num_tokens = 0;
    const int32_t* tokens_of = nullptr;  // not null: where the number lies instead, on the GPU
    void* y = nullptr;
    Weights weights;
    // For the tokens of all ranks; without ranges if the layer has no placement.
    placement::PlacementTable placement = {};
    // Results for this rank's tokens: [M][stride], [M][K], [M][K].
    float* logits = nullptr;
    int32_t* topk_idx = nullptr;
    float* topk_weights = nullptr;
  };
  // Appends what Create takes on each rank.
  static void ListMemory(const MoeLayerConfig& config, int num_ranks,
                         std::vector<MemoryPiece>& pieces);
  // All ranks call it, and none has checked less of its arguments than MoeLayer does.
  absl::Status Enqueue(Rank& rank, const Call& call) const;
  absl::StatusOr<ExpertLoads> Loads() const;  // of MoeLayer
  LoadCounting& load_counting() { return loads_; }

 private:
  struct OfRank {
    absl::Span<decode::State> state;
    absl::Span<float> logits;  // of all tokens
    absl::Span<char> h;
    absl::Span<char> shared_h;
    std::vector<uint64_t> copied;  // CopyFlags: the flags of tokens, then those of partial rows
  };

  DecodePath(Node& node, const MoeLayerConfig& config, TraceCollector* trace);
  absl::Status Init();
  absl::Status InitRank(Rank& rank);
  OfRank& of(const Rank& rank) { return ranks_[static_cast<size_t>(rank.rank())]; }
  const OfRank& of(const Rank& rank) const { return ranks_[static_cast<size_t>(rank.rank())]; }
  decode::DecodeParams ParamsOf(const Rank& rank, const Call& call) const;

  // NodeClient.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override;
  absl::Status CopyFlags(Rank& rank) override;
  std::vector<FlagTable> FlagTables(absl::Span<const device::FailureRecord> waits) override;
  absl::Status Recover(Rank& rank) override;

  const std::shared_ptr<Node> shared_node_;
  Node& node_;
  const MoeLayerConfig config_;
  TraceCollector* const trace_;
  const decode::Layout layout_;
  const decode::DecodeVariant variant_;
  const decode::SharedLayout shared_;
  std::unique_ptr<SymmetricHeap> heap_;
  NodeMemory memory_;
  LoadCounting loads_;
  std::vector<OfRank> ranks_;
  const std::shared_ptr<CaptureNeed> need_ = std::make_shared<CaptureNeed>();  // of graphs
  uint32_t client_ = 0;
};

}  // namespace octet

#endif  // OCTET_KERNELS_DECODE_DECODE_PATH_H_
