#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/fused/products.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/layer/layer_config.h"
#include "octet/model_folder.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/commands.h"
#include "tools/support/exit_code.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "model";

struct ModelFlags {
  std::string model;
  int ranks = 8;
  bool tensors = false;
};

void AddModelFlags(CommandLine& line, ModelFlags& flags) {
  line.Add("model", flags.model, "a model folder, with config.json and *.safetensors");
  line.Add("ranks", InRange(flags.ranks, 1, kMaxRanks), "ranks that the experts are divided among");
  line.Add("tensors", flags.tensors,
           "also look up all tensors of each layer, whose files must then be there");
}

// Returns the bytes of a layer's weights on each of so many ranks.
int64_t BytesPerRank(const MoeLayerConfig& config, int ranks) {
  const RoutedExpertsConfig experts = ExpertsConfig(config);
  size_t bytes = 0;
  for (const GroupedGemmConfig& product :
       {FirstProduct(experts, ranks), SecondProduct(experts, ranks)}) {
    const size_t scale_rows =
        static_cast<size_t>(product.experts) * static_cast<size_t>(product.weight_scale_rows());
    bytes += WeightBytes(product) +
             scale_rows * static_cast<size_t>(product.scale_words()) * sizeof(uint32_t);
  }
  const int64_t rows = int64_t{config.num_experts} + int64_t{3} * config.shared_intermediate;
  return static_cast<int64_t>(bytes) +
         rows * config.hidden * static_cast<int64_t>(InfoOf(config.dtype).bytes);
}

// Consecutive layers that are alike.
struct Layers {
  int first;
  int last;
  absl::StatusOr<MoeLayerConfig> config;
};

std::vector<Layers> LayersOf(const ModelFolder& folder) {
  std::vector<Layers> all;
  for (int layer = 0; layer < folder.num_layers(); ++layer) {
    absl::StatusOr<MoeLayerConfig> config = folder.LayerConfig(layer);
    const bool alike = !all.empty() && all.back().config.ok() == config.ok() &&
                       (!config.ok() || *all.back().config == *config);
    if (alike) {
      all.back().last = layer;
    } else {
      all.push_back({layer, layer, std::move(config)});
    }
  }
  return all;
}

std::string RouterText(const MoeLayerConfig& config) {
  std::string text(EnumName(config.router.scores));
  if (config.router.groups > 1) {
    absl::StrAppend(&text, ",", config.router.top_groups, "/", config.router.groups);
  }
  if (config.router.jitter != 0) absl::StrAppend(&text, ",", config.router.jitter);
  if (config.logit_bias) absl::StrAppend(&text, ",bias");
  return text;
}

std::string Table(const ModelFolder& folder, const std::vector<Layers>& all,
                  const ModelFlags& flags) {
  constexpr double kMebibyte = 1 << 20;
  std::string text = Comment(absl::StrCat(
      flags.model, ": ", EnumName(folder.family()), ", ", folder.num_layers(),
      " layers; bytes are those of a layer's weights on each of ", flags.ranks, " ranks"));
  const TextTable table({{"layers", "", 9},
                         {"experts", "", 9},
                         {"topk", "", 6},
                         {"hidden", "", 8},
                         {"between", "", 9},
                         {"shared", "", 8},
                         {"router", "", 18},
                         {"rows", "", 6},
                         {"weights", "", 9},
                         {"bytes", "MiB", 10}});
  text += table.Head();
  double total = 0;
  for (const Layers& layers : all) {
    const std::string numbers = layers.first == layers.last
                                    ? absl::StrCat(layers.first)
                                    : absl::StrCat(layers.first, "-", layers.last);
    if (!layers.config.ok()) {
      text += Comment(absl::StrCat(numbers, ": ", layers.config.status().message()));
      continue;
    }
    const MoeLayerConfig& config = *layers.config;
    const bool divides = config.num_experts % flags.ranks == 0;
    const double bytes = divides ? static_cast<double>(BytesPerRank(config, flags.ranks)) : 0;
    total += bytes * (layers.last - layers.first + 1);
    text += table.Row({numbers, absl::StrCat(config.num_experts), absl::StrCat(config.topk),
                       absl::StrCat(config.hidden), absl::StrCat(config.intermediate),
                       absl::StrCat(config.shared_intermediate), RouterText(config),
                       std::string(EnumName(config.dtype)),
                       std::string(InfoOf(ExpertWeights(config)).name),
                       divides ? absl::StrFormat("%.1f", bytes / kMebibyte) : "-"});
  }
  return text + Comment(absl::StrFormat("all layers with experts: %.1f MiB on each rank",
                                        total / kMebibyte));
}

absl::Status Show(const ModelFlags& flags) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> folder, ModelFolder::Open(flags.model));
  const std::vector<Layers> all = LayersOf(*folder);
  absl::PrintF("%s", Table(*folder, all, flags));
  if (!flags.tensors) return absl::OkStatus();
  for (const Layers& layers : all) {
    if (!layers.config.ok()) continue;
    for (int layer = layers.first; layer <= layers.last; ++layer) {
      OCTET_RETURN_IF_ERROR(folder->Weights(layer).status());
    }
  }
  absl::PrintF("%s", Comment("all tensors of these layers are there"));
  return absl::OkStatus();
}

int Run(CommandLine& line, ModelFlags& flags) {
  if (!line.Given("model")) {
    PrintError(kName, absl::InvalidArgumentError("--model is needed: the folder"));
    return kExitUsage;
  }
  const absl::Status status = AsUsageError(Show(flags));
  if (status.ok()) return kExitOk;
  PrintError(kName, status);
  return ExitCodeOf(status);
}

}  // namespace

Command ModelCommand() {
  const Command command = {
      .name = kName,
      .summary = "what a model folder has: layers, experts, formats, bytes",
      .details =
          "Reads config.json and the headers of *.safetensors, and no weights; needs no GPU.\n"
          "Layers that are alike share a line. `between` are the elements between an\n"
          "expert's products, `shared` those of the shared experts.\n"
          "`octet layer --model=DIR --all` runs and checks them. Exit codes: 0 ok, 2 usage.",
  };
  return WithFlags<ModelFlags>(command, AddModelFlags, Run);
}

}  // namespace octet
