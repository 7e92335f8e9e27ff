// The parts of a layer's call, for tools that time them.
#ifndef OCTET_KERNELS_EP_LAYER_PARTS_H_
#define OCTET_KERNELS_EP_LAYER_PARTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/routed_experts.h"

namespace octet {

enum class LayerPart { kRouter, kDispatch, kFirstProduct, kSecondProduct, kCombine, kShared };

class LayerPartObserver {
 public:
  virtual ~LayerPartObserver() = default;
  // Called on the rank's thread when everything up to the end of `part` has been enqueued on the
  // rank's stream. A part that shares a kernel with the next one is not reported; one that a call
  // repeats (MoeLayerConfig::capacity_rows) is, each time.
  virtual absl::Status PartEnqueued(Rank& rank, LayerPart part) = 0;
};

// What only tools and layers need of the public classes.
struct LayerInternals {
  // Reports the parts of calls from now on; nullptr: no longer. Not while calls are made.
  static void Observe(RoutedExperts& experts, LayerPartObserver* observer) {
    experts.Observe(observer);
  }
  static void Observe(MoeLayer& layer, LayerPartObserver* observer) { layer.Observe(observer); }
  // DispatchGemm with DispatchRequest::may_lack_room (kernels/ep/ep_calls.h).
  static absl::StatusOr<FusedReceived> DispatchGemmIfRoom(RoutedExperts& experts, Rank& rank,
                                                          const DispatchGemmArgs& args) {
    return experts.DispatchGemmIfRoom(rank, args);
  }
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_LAYER_PARTS_H_
