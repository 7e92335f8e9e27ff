// The input is a model folder's config.json.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/model/model_config.h"
#include "tests/fuzz/check.h"

namespace octet::fuzz {
namespace {

void CheckLayer(const MoeLayerConfig& config) {
  Check(config.num_experts >= 1 && config.topk >= 1);
  Check(config.hidden >= 1 && config.intermediate >= 1 && config.shared_intermediate >= 0);
  Check(!config.shared_gate || config.shared_intermediate > 0);
  Check(config.router.groups >= 1 && config.router.top_groups >= 1);
  Check(std::isfinite(config.router.scaling));
  Check(std::isfinite(config.router.jitter) && config.router.jitter >= 0);
}

void Run(absl::string_view text) {
  const absl::StatusOr<ModelConfig> config = ModelConfig::Parse(text, "config.json");
  if (!config.ok()) {
    if (absl::IsUnimplemented(config.status())) return Check(!config.status().message().empty());
    return CheckRefusal(config.status());
  }
  Check(config->num_layers >= 1);
  CheckRefusal(config->LayerConfig(-1).status());
  CheckRefusal(config->LayerConfig(config->num_layers).status());
  constexpr int kMostLayers = 16;
  const int most = config->num_layers - 1;
  for (int layer = 0; layer <= std::min(most, kMostLayers); ++layer) {
    for (const int each : {layer, most - layer}) {
      const absl::StatusOr<MoeLayerConfig> result = config->LayerConfig(each);
      if (result.ok()) {
        CheckLayer(*result);
      } else {
        CheckRefusal(result.status());
      }
    }
  }
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
