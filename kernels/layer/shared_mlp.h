// The shared experts of one rank: a gated network that every token passes.
#ifndef OCTET_KERNELS_LAYER_SHARED_MLP_H_
#define OCTET_KERNELS_LAYER_SHARED_MLP_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/layer_parts.h"
#include "octet/grouped_gemm.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "runtime/gpu/side_stream.h"
#include "runtime/memory/node_memory.h"

namespace octet {

// Enqueues two products, as MoeLayerConfig::shared_experts says: a call is Begin, PartEnqueued for
// the parts of the layer as they are enqueued, and End. Must not be destroyed inside Node::Run.
class SharedMlp {
 public:
  struct Call {
    const void* x = nullptr;                  // [T][H]
    int tokens = 0;                           // T
    const int32_t* expert_offsets = nullptr;  // {0, T}
    const void* first = nullptr;              // weights: GroupedGemmArgs::b of the products
    const void* second = nullptr;
  };

  // On the rank's thread, before any call. `config` has every choice made. Takes memory for the
  // outputs from `memory`, which must outlive this object's use.
  static absl::StatusOr<std::unique_ptr<SharedMlp>> Create(const MoeLayerConfig& config,
                                                           NodeMemory& memory);

  // x and the weights must not change in stream order until End.
  absl::Status Begin(const Rank& rank, const Call& call);
  absl::Status PartEnqueued(const Rank& rank, LayerPart part);
  // Makes out() valid for what rank.stream() receives next. Call it even after an error: the rank's
  // stream then waits for what has been enqueued beside it.
  absl::Status End(const Rank& rank, bool after_error);

  // [T][H] of the dtype.
  const void* out() const { return out_.data(); }

  // Leaves everything undestroyed: it is still in use.
  static void Abandon(std::unique_ptr<SharedMlp> mlp);

 private:
  SharedMlp() = default;

  absl::Status First(hipStream_t stream);
  absl::Status Second(hipStream_t stream);

  std::unique_ptr<GroupedGemm> first_;
  std::unique_ptr<GroupedGemm> second_;
  absl::Span<char> h_;
  absl::Span<char> out_;
  std::optional<SideStream> side_;  // kBeside
  Call call_;
  bool first_enqueued_ = false;
  bool second_enqueued_ = false;
};

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_SHARED_MLP_H_
