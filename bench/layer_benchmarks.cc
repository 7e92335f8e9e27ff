#include "bench/layer_benchmarks.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bench/measured.h"
#include "kernels/layer/layer_config.h"
#include "octet/enum_names.h"
#include "octet/model_folder.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/layer/layer_run.h"
#include "tools/support/domain.h"
#include "tools/support/statistics.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/model_shapes.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

struct Layer {
  absl::string_view name;
  ModelFamily family;
  GemmFormat weights;
  std::vector<int> tokens;    // of each rank
  std::vector<int> few = {};  // likewise, for both paths
};

std::vector<Layer> AllLayers() {
  return {{.name = "qwen3_30b",
           .family = ModelFamily::kQwen3Moe,
           .weights = GemmFormat::kSame,
           .tokens = {1, 16, 128, 1024, 8192},
           .few = {1, 2, 4, 8, 16, 32, 64}},
          {.name = "mixtral_8x7b",
           .family = ModelFamily::kMixtral,
           .weights = GemmFormat::kSame,
           .tokens = {1, 16, 128, 1024, 8192}},
          {.name = "dsv3",
           .family = ModelFamily::kDeepseekV3,
           .weights = GemmFormat::kSame,
           .tokens = {1, 16, 128, 1024, 4096}},
          {.name = "dsv3_fp8",
           .family = ModelFamily::kDeepseekV3,
           .weights = GemmFormat::kFp8,
           .tokens = {1, 16, 128, 1024, 4096}}};
}

// For emulated GPUs.
std::vector<Layer> SmallLayers() {
  return {{.name = "small",
           .family = ModelFamily::kQwen3Moe,
           .weights = GemmFormat::kSame,
           .tokens = {4},
           .few = {2}},
          {.name = "small_fp8",
           .family = ModelFamily::kDeepseekV3,
           .weights = GemmFormat::kFp8,
           .tokens = {2}}};
}

absl::StatusOr<double> Measure(benchmark::State& state, Session& session,
                               const LayerRunOptions& options, int tokens) {
  constexpr uint64_t kSeed = 4;
  Node& node = session.node();
  const bool bias = options.config.router.scores == RouterScores::kSigmoid;
  const RandomWeights weights(options.config, bias, kSeed);
  const LayerTokens x =
      RandomTokens(tokens, options.config.hidden, node.num_ranks(), options.config.dtype, kSeed);
  const Progress quiet(false);
  OCTET_ASSIGN_OR_RETURN(const LayerReport report,
                         RunLayer(node, options, weights.weights(), x, quiet));
  OCTET_RETURN_IF_ERROR(report.Checked());
  for (const LayerRow& row : report.rows) {
    if (row.what != (options.graph ? "graph" : "layer")) continue;
    if (row.tflops.has_value()) state.counters["TFLOPps"] = *row.tflops;
    if (row.weights_tbps.has_value()) state.counters["weights_TBps"] = *row.weights_tbps;
    // None where the libraries are missing, memory is short, or weights are FP8.
    for (const MeasuredContender& contender : report.contenders) {
      state.counters[absl::StrCat(contender.row.what, "_us")] = Summarize(contender.row.us).median;
    }
    return Summarize(row.us).median;
  }
  return absl::InternalError("the layer was not timed");
}

}  // namespace

void RegisterLayerBenchmarks(Session& session) {
  constexpr int kIters = 12;
  const bool small = session.emulated() && !session.all_shapes();
  for (const Layer& layer : small ? SmallLayers() : AllLayers()) {
    LayerRunOptions options;
    options.config = small ? SmallShape(layer.family) : ModelShape(layer.family);
    options.config.router = ModelRouter(layer.family, options.config.num_experts);
    options.config.weights = layer.weights;
    options.check = session.options().check;
    options.contenders = {{.exchange = "nccl", .products = "cublas_streams"}};
    if (session.emulated()) options.warmup = 0;
    options.iters = session.emulated() ? 1 : kIters;
    for (const int tokens : layer.tokens) {
      RegisterMeasured(session, absl::StrCat("layer/", layer.name, "_T", tokens),
                       [options, tokens, &session](benchmark::State& state) {
                         return Measure(state, session, options, tokens);
                       });
    }
    options.contenders.clear();
    options.graph = true;
    for (const int tokens : layer.few) {
      for (const LayerPath path : {LayerPath::kLaunches, LayerPath::kDecode}) {
        options.config.path = path;
        options.config.max_tokens_per_rank = tokens;
        if (!Validate(options.config, session.node().num_ranks()).ok()) continue;
        RegisterMeasured(session,
                         absl::StrCat("layer/", layer.name, "_T", tokens, "/path:", EnumName(path)),
                         [options, tokens, &session](benchmark::State& state) {
                           return Measure(state, session, options, tokens);
                         });
      }
    }
  }
}

}  // namespace octet
