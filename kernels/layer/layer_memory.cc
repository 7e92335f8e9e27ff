#include "octet/layer_memory.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/decode/decode_path.h"
#include "kernels/ep/base/load_counting.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/fused/choose_fusion.h"
#include "kernels/fused/products.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/layer/layer_config.h"
#include "kernels/layer/layer_workspace.h"
#include "kernels/placement/kernels.h"
#include "kernels/router/few_tokens.h"
#include "kernels/router/route_params.h"
#include "kernels/tuning/tuning.h"
#include "octet/dtype.h"
#include "octet/ep_config.h"
#include "octet/fp8_scale.h"
#include "octet/gemm_tiles.h"
#include "octet/routed_experts.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

class Pieces {
 public:
  void Add(MemoryUse use, absl::string_view name, size_t bytes) {
    pieces_.push_back({use, std::string(name), bytes});
  }
  std::vector<MemoryPiece>& all() { return pieces_; }
  std::vector<MemoryPiece> NotEmpty() {
    std::erase_if(pieces_, [](const MemoryPiece& piece) { return piece.bytes == 0; });
    return std::move(pieces_);
  }

 private:
  std::vector<MemoryPiece> pieces_;
};

void AddWeights(const MoeLayerConfig& c, const RoutedExpertsConfig& experts, int num_ranks,
                Pieces& pieces) {
  const auto add = [&](absl::string_view name, size_t bytes) {
    pieces.Add(MemoryUse::kWeights, name, bytes);
  };
  const size_t plain = InfoOf(c.dtype).bytes;
  const GroupedGemmConfig first = FirstProduct(experts, num_ranks);
  const GroupedGemmConfig second = SecondProduct(experts, num_ranks);
  const auto scales = [](const GroupedGemmConfig& product) {
    return Size(product.experts) * Size(product.weight_scale_rows()) * Size(product.scale_words()) *
           sizeof(float);
  };
  add("router", Size(LogitStride(c)) * Size(c.hidden) * plain);
  add("router bias", Size(c.num_experts) * sizeof(float));
  add("bias of the logits", c.logit_bias ? Size(LogitStride(c)) * sizeof(float) : 0);
  if (c.expert_biases) {
    add("biases of the experts", Size(first.experts) * Size(first.n + second.n) * sizeof(float));
  }
  add("gate and up of the experts", WeightBytes(first));
  add("their scales", scales(first));
  add("down of the experts", WeightBytes(second));
  add("its scales", scales(second));
  add("shared gate and up", 2 * Size(c.shared_intermediate) * Size(c.hidden) * plain);
  add("shared down", Size(c.hidden) * Size(c.shared_intermediate) * plain);
}

// Adds what MoeLayer::Routed returns.
void AddRouted(const MoeLayerConfig& c, Pieces& pieces) {
  const size_t tokens = Size(c.max_tokens_per_rank);
  pieces.Add(MemoryUse::kWorkspace, "logits", tokens * Size(LogitStride(c)) * sizeof(float));
  pieces.Add(MemoryUse::kWorkspace, "chosen experts", tokens * Size(c.topk) * sizeof(int32_t));
  pieces.Add(MemoryUse::kWorkspace, "their weights", tokens * Size(c.topk) * sizeof(float));
}

// The table of a placement, for tokens of so many ranks.
void AddPlacement(const MoeLayerConfig& c, int sources, Pieces& pieces) {
  const size_t of_expert = Size(sources) * sizeof(placement::ReplicaRange) + sizeof(int32_t);
  pieces.Add(MemoryUse::kWorkspace, "placement",
             Size(c.num_experts) * of_expert + c.placement.slots().size() * sizeof(int32_t));
}

void AddCounters(const MoeLayerConfig& c, int num_ranks, Pieces& pieces) {
  const int of_experts = c.placement.empty() ? 0 : c.num_experts;
  pieces.Add(MemoryUse::kWorkspace, "load counters",
             LoadCounterBytes(c.loads, c.num_local_experts(num_ranks)) +
                 LoadCounterBytes(c.loads, of_experts));
}

// The memory of the layer and of its products.
void AddLaunches(const MoeLayerConfig& c, const RoutedExpertsConfig& experts, int num_ranks,
                 Pieces& pieces) {
  const auto add = [&](absl::string_view name, size_t bytes) {
    pieces.Add(MemoryUse::kWorkspace, name, bytes);
  };
  const EpConfig& ep = experts.ep;
  const size_t tokens = Size(c.max_tokens_per_rank);
  const size_t rows = Size(ep.max_rows(num_ranks));
  const size_t element = InfoOf(c.dtype).bytes;
  const bool quantized = QuantizesRows(c);
  const auto fp8_scales = [&](int columns) {
    return Size(Fp8ScaleWords(columns, kGemmScaleGroup, ScaleFormat::kFloat32)) * sizeof(uint32_t);
  };
  AddRouted(c, pieces);
  if (!c.placement.empty()) {
    add("physical ids", 2 * tokens * Size(c.topk) * sizeof(int32_t));
    AddPlacement(c, 1, pieces);
  }
  add("offsets of products of tokens", 2 * (tokens + 1) * sizeof(int32_t));
  add("parts of logits", LogitPartWords(LogitRows(c)) * sizeof(uint32_t));
  if (c.weighs_input) {
    add("tokens times their weights", tokens * Size(c.hidden) * element);
    add("weights of 1", tokens * sizeof(float));
  }
  if (ep.x_scale_words() > 0) {
    add("quantized tokens", tokens * Size(c.hidden));
    add("their scales", tokens * fp8_scales(c.hidden));
  }
  add("rows between the products", rows * Size(c.intermediate) * element);
  if (quantized) {
    add("the same, quantized", rows * Size(c.intermediate));
    add("their scales", rows * fp8_scales(c.intermediate));
  }
  add("outputs of the experts", SecondProductInPlace(ep) ? 0 : rows * ep.dtype_row_bytes());
  add("shared rows between products", tokens * Size(c.shared_intermediate) * element);
  add("shared outputs", c.shared_intermediate > 0 ? tokens * Size(c.hidden) * element : 0);
  AddCounters(c, num_ranks, pieces);
}

absl::StatusOr<LayerMemory> MemoryOfDecode(const MoeLayerConfig& config, int num_ranks) {
  LayerMemory memory = {.pieces = {}, .config = config};
  memory.config.fusion = Fusion::kNone;
  Pieces pieces;
  AddWeights(config, PhysicalExpertsConfig(config), num_ranks, pieces);
  DecodePath::ListMemory(config, num_ranks, pieces.all());
  AddRouted(config, pieces);
  if (!config.placement.empty()) AddPlacement(config, num_ranks, pieces);
  AddCounters(config, num_ranks, pieces);
  memory.pieces = pieces.NotEmpty();
  return memory;
}

// The most blocks of dispatch and combine.
int BlocksOf(const EpConfig& ep, const Topology& topology) {
  const int units = topology.gpus.front().num_compute_units;
  const int asked = ep.tuning.blocks > 0 ? ep.tuning.blocks : ep.max_blocks;
  return asked > 0 ? std::min(asked, units) : units;
}

}  // namespace

size_t LayerMemory::Bytes(MemoryUse use) const {
  size_t bytes = 0;
  for (const MemoryPiece& piece : pieces) bytes += piece.use == use ? piece.bytes : 0;
  return bytes;
}

size_t LayerMemory::BytesBesideWeights() const {
  return Bytes(MemoryUse::kHeap) + Bytes(MemoryUse::kWorkspace);
}

absl::Span<const EnumEntry<MemoryUse>> EnumTable(MemoryUse /*unused*/) {
  static constexpr EnumEntry<MemoryUse> kTable[] = {{MemoryUse::kWeights, "weights"},
                                                    {MemoryUse::kHeap, "heap"},
                                                    {MemoryUse::kWorkspace, "workspace"}};
  return kTable;
}

absl::StatusOr<LayerMemory> MemoryOfLayer(const MoeLayerConfig& config, const Topology& topology,
                                          int num_ranks) {
  OCTET_RETURN_IF_ERROR(Validate(config, num_ranks));
  if (topology.gpus.empty()) return absl::InvalidArgumentError("the topology has no GPUs");
  if (config.path == LayerPath::kDecode) return MemoryOfDecode(config, num_ranks);
  LayerMemory memory = {.pieces = {}, .config = config};
  MoeLayerConfig& chosen = memory.config;
  chosen.path = LayerPath::kLaunches;
  const NodesOfRanks nodes = {.num_nodes = 1, .ranks_per_node = num_ranks};
  OCTET_RETURN_IF_ERROR(ChooseLaunches(topology, nodes, chosen));
  OCTET_ASSIGN_OR_RETURN(RoutedExpertsConfig experts,
                         PreferredFusions(PhysicalExpertsConfig(chosen), topology, num_ranks));
  OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table, TuningTable::Default());
  OCTET_ASSIGN_OR_RETURN(const EpPlan plan,
                         EpPlan::Resolve(experts.ep, num_ranks, topology, *table));
  experts.ep = plan.config;
  chosen.strategy = experts.ep.strategy;
  chosen.fusion = experts.gemm_combine;
  Pieces pieces;
  AddWeights(chosen, experts, num_ranks, pieces);
  InfoOf(experts.ep.strategy)
      .list_memory(experts.ep, num_ranks, BlocksOf(experts.ep, topology), pieces.all());
  AddLaunches(chosen, experts, num_ranks, pieces);
  memory.pieces = pieces.NotEmpty();
  return memory;
}

int64_t EvenRows(const MoeLayerConfig& config) {
  return int64_t{config.max_tokens_per_rank} * config.topk;
}

}  // namespace octet
