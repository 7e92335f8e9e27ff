#include "tools/contenders/layer_contender.h"

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "kernels/ep/base/whole_gpu.h"
#include "kernels/layer/add_shared.h"
#include "kernels/layer/layer_config.h"
#include "kernels/layer/pack_weights.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/node_memory.h"
#include "tools/contenders/gemm_contender.h"
#include "tools/contenders/sorted_exchange.h"
#include "tools/contenders/swiglu_rows.h"

namespace octet {
namespace {

constexpr int kElementsPerVec = 8;

EpConfig ExchangeConfig(const MoeLayerConfig& config) {
  EpConfig ep;
  ep.num_experts = config.num_experts;
  ep.topk = config.topk;
  ep.hidden = config.hidden;
  ep.max_tokens_per_rank = config.max_tokens_per_rank;
  ep.dtype = config.dtype;
  return ep;
}

// Gated networks of one rank: their weights, and what is between their products.
struct Networks {
  int count;
  int intermediate;
  int64_t max_rows;
  absl::Span<char> first;    // [count][2 · I][H], as PackGateUp
  absl::Span<char> second;   // [count][H][I]
  absl::Span<char> gate_up;  // [max_rows][2 · I]
  absl::Span<char> h;        // [max_rows][I]
  absl::Span<char> out;      // [max_rows][H]
};

class LibrariesLayer final : public LayerContender {
 public:
  LibrariesLayer(Node& node, const MoeLayerConfig& config)
      : node_(node), config_(config), memory_(node), ranks_(Size(node.num_ranks())) {}
  LibrariesLayer(const LibrariesLayer&) = delete;
  LibrariesLayer& operator=(const LibrariesLayer&) = delete;
  ~LibrariesLayer() override;

  absl::Status Init(const LayerLibraries& libraries, absl::string_view platform);
  absl::Status Load(const MoeLayerWeights& weights) override;
  absl::Status Forward(Rank& rank, const ContenderTokens& tokens) override;

 private:
  struct OfRank {
    std::unique_ptr<GemmContender> products;  // all of this rank
    Networks experts;
    Networks shared;  // one, of the rank's own tokens; none if it has no columns
    bool called = false;
  };

  bool IsFp16() const { return config_.dtype == DType::kFloat16; }
  OfRank& StateOf(const Rank& rank) { return ranks_[Size(rank.rank())]; }
  absl::Status InitRank(const Rank& rank);
  absl::Status Allocate(Networks& networks);
  absl::Status Upload(const Networks& networks, size_t index, const MlpWeights& weights) const;
  absl::Status Multiply(Rank& rank, const Networks& networks, const void* x,
                        const std::vector<int32_t>& rows);
  absl::Status AddSharedExperts(Rank& rank, const ContenderTokens& tokens);

  Node& node_;
  const MoeLayerConfig config_;
  NodeMemory memory_;
  std::vector<std::unique_ptr<Contender>> exchanges_;
  std::unique_ptr<ExpertParallel> ep_;
  SortedExchange* exchange_ = nullptr;  // ep_
  std::vector<OfRank> ranks_;
};

LibrariesLayer::~LibrariesLayer() {
  if (node_.ReadyToFree()) return;
  for (OfRank& mine : ranks_) {  // a library would wait for work that does not end
    [[maybe_unused]] const GemmContender* const left = mine.products.release();
  }
}

absl::Status LibrariesLayer::Init(const LayerLibraries& libraries, absl::string_view platform) {
  exchanges_ = MakeContenders(node_);
  const absl::StatusOr<Contender*> found = FindContender(exchanges_, libraries.exchange);
  // Mistakes come before what this machine lacks.
  if (absl::IsInvalidArgument(found.status())) return found.status();
  for (OfRank& mine : ranks_) {
    OCTET_ASSIGN_OR_RETURN(mine.products, MakeGemmContender(platform, libraries.products));
    if (!mine.products->prepares_in_calls()) {
      return absl::InvalidArgumentError(absl::StrCat(
          libraries.products, " allocates for the rows that experts have, so no layer can use it"));
    }
  }
  if (config_.weights != GemmFormat::kSame) {
    return absl::UnimplementedError("it multiplies by weights of the dtype only");
  }
  if (config_.logit_bias || config_.expert_biases || config_.weighs_input ||
      config_.swiglu != SwiGlu()) {
    return absl::UnimplementedError(
        "it has no biases, no parameters of SwiGLU and no weights of x");
  }
  OCTET_ASSIGN_OR_RETURN(Contender * exchange, found);
  if (exchange->is_strategy()) {
    return absl::InvalidArgumentError(
        absl::StrCat(libraries.exchange,
                     " is Octet's; a layer's contender exchanges rows by nccl, "
                     "rccl or memcpy_peer"));
  }
  OCTET_RETURN_IF_ERROR(exchange->Available());
  if (const absl::Status status = exchange->Check(ExchangeConfig(config_)); !status.ok()) {
    return absl::UnimplementedError(status.message());
  }
  OCTET_ASSIGN_OR_RETURN(ep_, exchange->Create(ExchangeConfig(config_), {}));
  exchange_ = dynamic_cast<SortedExchange*>(&ep_->calls());
  if (exchange_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(libraries.exchange, " does not tell the host how many rows experts have"));
  }
  return node_.Run([this](Rank& rank) { return InitRank(rank); });
}

absl::Status LibrariesLayer::InitRank(const Rank& rank) {
  OfRank& mine = StateOf(rank);
  mine.experts.count = config_.num_experts / rank.num_ranks();
  mine.experts.intermediate = config_.intermediate;
  mine.experts.max_rows = ep_->config().max_rows(rank.num_ranks());
  mine.shared.count = 1;
  mine.shared.intermediate = config_.shared_intermediate;
  mine.shared.max_rows = config_.max_tokens_per_rank;
  OCTET_RETURN_IF_ERROR(Allocate(mine.experts));
  OCTET_RETURN_IF_GPU_ERROR(LoadSwiGluRows(IsFp16()));
  // Makes whatever the products of all experts need, so that calls do not.
  OCTET_RETURN_IF_ERROR(mine.products->Prepare(
      {std::vector<int32_t>(Size(mine.experts.count), 1), 2 * config_.intermediate, config_.hidden,
       config_.dtype, mine.experts.out.data(), mine.experts.first.data(),
       mine.experts.gate_up.data()}));
  if (config_.shared_intermediate == 0) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(Allocate(mine.shared));
  return OCTET_GPU(LoadAddShared(IsFp16()));
}

absl::Status LibrariesLayer::Allocate(Networks& networks) {
  const size_t element = InfoOf(config_.dtype).bytes;
  const size_t hidden = Size(config_.hidden) * element;
  const size_t between = Size(networks.intermediate) * element;
  const auto rows = static_cast<size_t>(networks.max_rows);
  const size_t weights = Size(networks.count) * hidden * Size(networks.intermediate);
  struct Piece {
    absl::Span<char>* memory;
    size_t bytes;
  };
  for (const auto& [memory, bytes] :
       {Piece{&networks.first, 2 * weights}, Piece{&networks.second, weights},
        Piece{&networks.gate_up, 2 * rows * between}, Piece{&networks.h, rows * between},
        Piece{&networks.out, rows * hidden}}) {
    OCTET_ASSIGN_OR_RETURN(*memory, memory_.Device<char>(bytes));
  }
  return absl::OkStatus();
}

absl::Status LibrariesLayer::Upload(const Networks& networks, size_t index,
                                    const MlpWeights& weights) const {
  const PackedMatrix first = PackGateUp(weights, PlainWeights(config_));
  const PackedMatrix second = PackMatrix(weights.down, PlainWeights(config_));
  for (const auto& [memory, matrix] :
       {std::pair{networks.first, &first}, std::pair{networks.second, &second}}) {
    const size_t bytes = matrix->elements.size();
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(memory.subspan(index * bytes, bytes).data(),
                                        matrix->elements.data(), bytes, hipMemcpyHostToDevice));
  }
  return absl::OkStatus();
}

absl::Status LibrariesLayer::Load(const MoeLayerWeights& weights) {
  OCTET_RETURN_IF_ERROR(CheckWeights(config_, weights));
  return node_.Run([&](Rank& rank) -> absl::Status {
    const OfRank& mine = StateOf(rank);
    const size_t local = Size(mine.experts.count);
    for (size_t i = 0; i < local; ++i) {
      OCTET_RETURN_IF_ERROR(
          Upload(mine.experts, i, weights.experts[Size(rank.rank()) * local + i]));
    }
    return config_.shared_intermediate == 0 ? absl::OkStatus()
                                            : Upload(mine.shared, 0, weights.shared);
  });
}

absl::Status LibrariesLayer::Multiply(Rank& rank, const Networks& networks, const void* x,
                                      const std::vector<int32_t>& rows) {
  const auto total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (total == 0) return absl::OkStatus();
  // A library loads a kernel when it is first needed, which may wait for whatever the GPU does; if
  // that is an exchange, other ranks may need the driver to take part in it.
  if (!StateOf(rank).called) OCTET_RETURN_IF_ERROR(rank.Synchronize());
  GemmContender& products = *StateOf(rank).products;
  const int between = networks.intermediate;
  OCTET_RETURN_IF_ERROR(products.Prepare({rows, 2 * between, config_.hidden, config_.dtype, x,
                                          networks.first.data(), networks.gate_up.data()}));
  OCTET_RETURN_IF_ERROR(products.Run(rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(LaunchSwiGluRows(
      {.gate_up = networks.gate_up.data(),
       .h = networks.h.data(),
       .rows = total,
       .row_vecs = between / kElementsPerVec},
      IsFp16(), WholeGpuForThreads(rank, total * (between / kElementsPerVec)), rank.stream()));
  OCTET_RETURN_IF_ERROR(
      products.Prepare({rows, config_.hidden, between, config_.dtype, networks.h.data(),
                        networks.second.data(), networks.out.data()}));
  return products.Run(rank.stream());
}

absl::Status LibrariesLayer::AddSharedExperts(Rank& rank, const ContenderTokens& tokens) {
  if (config_.shared_intermediate == 0 || tokens.count == 0) return absl::OkStatus();
  const Networks& shared = StateOf(rank).shared;
  OCTET_RETURN_IF_ERROR(Multiply(rank, shared, tokens.x, {tokens.count}));
  const AddSharedParams params = {
      .y = tokens.y,
      .shared = shared.out.data(),
      .gate = config_.shared_gate ? tokens.routed.logits + config_.num_experts : nullptr,
      .gate_stride = tokens.routed.stride,
      .num_tokens = tokens.count,
      .row_vecs = config_.hidden / kElementsPerVec};
  const int64_t vecs = int64_t{params.num_tokens} * params.row_vecs;
  return OCTET_GPU(
      LaunchAddShared(params, IsFp16(), WholeGpuForThreads(rank, vecs), rank.stream()));
}

absl::Status LibrariesLayer::Forward(Rank& rank, const ContenderTokens& tokens) {
  const DispatchArgs dispatch = {.x = tokens.x,
                                 .topk_idx = tokens.routed.topk_idx,
                                 .topk_weights = tokens.routed.topk_weights,
                                 .num_tokens = tokens.count};
  OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, ep_->DispatchSend(rank, dispatch));
  OCTET_ASSIGN_OR_RETURN(const Received received, ep_->DispatchReceive(rank, handle));
  const Networks& experts = StateOf(rank).experts;
  OCTET_RETURN_IF_ERROR(Multiply(rank, experts, received.x, exchange_->ExpertRows(rank)));
  const CombineArgs combine = {.expert_out = experts.out.data(), .y = tokens.y};
  OCTET_RETURN_IF_ERROR(ep_->CombineSend(rank, handle, combine));
  OCTET_RETURN_IF_ERROR(ep_->CombineReceive(rank, handle, combine));
  OCTET_RETURN_IF_ERROR(AddSharedExperts(rank, tokens));
  StateOf(rank).called = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LayerLibraries> ParseLayerLibraries(absl::string_view name) {
  const std::vector<std::string> names = absl::StrSplit(name, '+');
  if (names.size() != 2 || names[0].empty() || names[1].empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("contender '", name,
                     "' is not of the form EXCHANGE+PRODUCTS, such as nccl+cublas_streams"));
  }
  return LayerLibraries{names[0], names[1]};
}

absl::StatusOr<std::unique_ptr<LayerContender>> LayerContender::Create(
    Node& node, const MoeLayerConfig& config, const LayerLibraries& libraries,
    absl::string_view platform) {
  auto layer = std::make_unique<LibrariesLayer>(node, config);
  OCTET_RETURN_IF_ERROR(layer->Init(libraries, platform));
  return layer;
}

}  // namespace octet
