#include "kernels/layer/layer_weights.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <numeric>
#include <system_error>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/products.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/layer/layer_config.h"
#include "kernels/layer/pack_weights.h"
#include "kernels/router/route_params.h"
#include "octet/dtype.h"
#include "octet/grouped_gemm.h"
#include "octet/routed_experts.h"
#include "runtime/base/mutex.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

absl::Status Upload(absl::Span<char> memory, size_t offset, const void* data, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (offset + bytes > memory.size()) {
    return absl::InternalError(absl::StrCat("weights of ", bytes, " bytes at ", offset,
                                            " exceed their ", memory.size(), " bytes"));
  }
  return OCTET_GPU(hipMemcpy(memory.data() + offset, data, bytes, hipMemcpyHostToDevice));
}

// Copies a packed matrix to where the index-th of its kind belongs.
absl::Status Upload(absl::Span<char> elements, absl::Span<char> scales, size_t index,
                    const PackedMatrix& matrix) {
  OCTET_RETURN_IF_ERROR(Upload(elements, index * matrix.elements.size(), matrix.elements.data(),
                               matrix.elements.size()));
  const std::vector<uint8_t> bytes = ScaleBytes(matrix);
  return Upload(scales, index * bytes.size(), bytes.data(), bytes.size());
}

absl::Status UploadFloats(absl::Span<char> memory, size_t index, absl::Span<const float> values) {
  const size_t bytes = values.size() * sizeof(float);
  return Upload(memory, index * bytes, values.data(), bytes);
}

}  // namespace

LayerWeights::ExpertArrays LayerWeights::Arrays() const {
  const int num_ranks = layer_ranks_.num_ranks();
  const RoutedExpertsConfig experts = PhysicalExpertsConfig(config_);
  const size_t slots = Size(config_.num_local_experts(num_ranks));
  ExpertArrays arrays = {};
  size_t i = 0;
  size_t offset = 0;
  const auto add = [&](size_t slot_bytes) {
    arrays[i++] = {.offset = offset, .slot_bytes = slot_bytes};
    offset += slots * slot_bytes + SymmetricHeap::kAlignment - 1;
    offset -= offset % SymmetricHeap::kAlignment;
  };
  for (const GroupedGemmConfig& product :
       {FirstProduct(experts, num_ranks), SecondProduct(experts, num_ranks)}) {
    add(WeightBytes(product) / slots);
    add(Size(product.weight_scale_rows()) * Size(product.scale_words()) * sizeof(float));
    add(config_.expert_biases ? Size(product.n) * sizeof(float) : 0);
  }
  return arrays;
}

absl::Status LayerWeights::Allocate(bool movable) {
  if (movable) {
    const ExpertArrays arrays = Arrays();
    const size_t slots = Size(config_.num_local_experts(layer_ranks_.num_ranks()));
    const size_t bytes = arrays.back().offset + slots * arrays.back().slot_bytes;
    OCTET_ASSIGN_OR_RETURN(heap_, SymmetricHeap::Create(*node_, {.cached = bytes}));
  }
  return node_->Run([this](const Rank& rank) { return AllocateRank(rank); });
}

absl::Status LayerWeights::AllocateRank(const Rank& rank) {
  OfRank& mine = ranks_[Size(rank.rank())];
  const MoeLayerConfig& c = config_;
  const size_t plain = InfoOf(c.dtype).bytes;
  const size_t hidden = Size(c.hidden);
  const size_t slots = Size(c.num_local_experts(layer_ranks_.num_ranks()));
  absl::Span<char>* const arrays[] = {&mine.first,  &mine.first_scales,  &mine.first_bias,
                                      &mine.second, &mine.second_scales, &mine.second_bias};
  size_t i = 0;
  for (const placement::SlotArray& array : Arrays()) {
    absl::Span<char>& memory = *arrays[i++];
    const size_t bytes = slots * array.slot_bytes;
    if (heap_ == nullptr) {
      OCTET_ASSIGN_OR_RETURN(memory, memory_.Device<char>(bytes));
    } else {
      char* const base = heap_->peers(rank.rank(), HeapMemory::kCached).base[rank.rank()];
      memory = absl::MakeSpan(base + array.offset, bytes);
    }
  }
  struct Piece {
    absl::Span<char>* memory;
    size_t bytes;
  };
  for (const auto& [memory, bytes] : {
           Piece{&mine.router, Size(LogitStride(c)) * hidden * plain},
           Piece{&mine.shared_first, 2 * Size(c.shared_intermediate) * hidden * plain},
           Piece{&mine.shared_second, hidden * Size(c.shared_intermediate) * plain},
       }) {
    OCTET_ASSIGN_OR_RETURN(*memory, memory_.Device<char>(bytes));
  }
  OCTET_ASSIGN_OR_RETURN(mine.router_bias, memory_.Device<float>(Size(c.num_experts)));
  if (c.logit_bias) {
    OCTET_ASSIGN_OR_RETURN(mine.logit_bias, memory_.Device<float>(Size(LogitStride(c))));
  }
  return absl::OkStatus();
}

absl::Status LayerWeights::LoadRouter(const OfRank& mine, const MoeLayerWeights& weights) const {
  const WeightFormat format = PlainWeights(config_);
  // Rows that nothing belongs to are zero.
  std::vector<uint8_t> rows = PackMatrix(weights.router, format).elements;
  if (config_.shared_gate) {
    const std::vector<uint8_t> gate = PackMatrix(weights.shared_gate, format).elements;
    rows.insert(rows.end(), gate.begin(), gate.end());
  }
  rows.resize(mine.router.size(), 0);
  OCTET_RETURN_IF_ERROR(Upload(mine.router, 0, rows.data(), rows.size()));
  if (config_.logit_bias) {
    std::vector<float> logit_bias = PackVector(weights.logit_bias);
    logit_bias.resize(mine.logit_bias.size(), 0.0F);
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(mine.logit_bias.data(), logit_bias.data(),
                                        logit_bias.size() * sizeof(float), hipMemcpyHostToDevice));
  }
  std::vector<float> bias(Size(config_.num_experts), 0.0F);
  if (!weights.router_bias.empty()) {
    for (int e = 0; e < config_.num_experts; ++e) {
      bias[Size(e)] = ElementOf(weights.router_bias, 0, e);
    }
  }
  return OCTET_GPU(hipMemcpy(mine.router_bias.data(), bias.data(), bias.size() * sizeof(float),
                             hipMemcpyHostToDevice));
}

std::vector<int32_t> LayerWeights::ExpertsOf(const Rank& rank, const Placement& placement) const {
  const size_t local = Size(config_.num_local_experts(layer_ranks_.num_ranks()));
  const size_t first = layer_ranks_.global(rank) * local;
  std::vector<int32_t> experts(local);
  if (placement.empty()) {
    std::iota(experts.begin(), experts.end(), static_cast<int32_t>(first));
  } else {
    absl::c_copy(placement.slots().subspan(first, local), experts.begin());
  }
  return experts;
}

absl::Status LayerWeights::LoadExpert(const OfRank& mine, size_t slot,
                                      const MlpWeights& expert) const {
  const WeightFormat format = ExpertWeights(config_);
  OCTET_RETURN_IF_ERROR(Upload(mine.first, mine.first_scales, slot, PackGateUp(expert, format)));
  if (config_.expert_biases) {
    OCTET_RETURN_IF_ERROR(UploadFloats(mine.first_bias, slot, PackGateUpBias(expert)));
    OCTET_RETURN_IF_ERROR(UploadFloats(mine.second_bias, slot, PackVector(expert.down_bias)));
  }
  return Upload(mine.second, mine.second_scales, slot, PackMatrix(expert.down, format));
}

absl::Status LayerWeights::LoadExperts(const Rank& rank, const MoeLayerWeights& weights,
                                       const Placement& placement) const {
  const OfRank& mine = of(rank);
  const std::vector<int32_t> experts = ExpertsOf(rank, placement);
  const size_t slots = experts.size();
  // Each loads the next expert until none is left, or one has failed.
  Mutex mutex;
  size_t next = 0;
  absl::Status failure;
  const auto load = [&] {
    const hipError_t current = hipSetDevice(rank.device());
    absl::Status status = GpuStatus(current, "hipSetDevice");
    while (true) {
      size_t slot = 0;
      {
        MutexLock lock(&mutex);
        if (failure.ok()) failure = status;
        while (next < slots && experts[next] == Placement::kFreeSlot) ++next;
        if (!failure.ok() || next == slots) return;
        slot = next++;
      }
      status = LoadExpert(mine, slot, weights.experts[Size(experts[slot])]);
    }
  };
  const size_t cpus = std::max(std::thread::hardware_concurrency(), 1U);
  std::vector<std::thread> helpers;
  while (helpers.size() + 1 < std::min(cpus / Size(rank.num_ranks()), slots)) {
    // The standard library reports by exceptions only.
    try {
      helpers.emplace_back(load);
    } catch (const std::system_error&) {
      break;  // the system has no more threads: those that there are do all of it
    }
  }
  load();
  for (std::thread& helper : helpers) helper.join();
  return failure;
}

absl::Status LayerWeights::Load(const Rank& rank, const MoeLayerWeights& weights,
                                const Placement& placement) {
  const OfRank& mine = of(rank);
  OCTET_RETURN_IF_ERROR(LoadRouter(mine, weights));
  OCTET_RETURN_IF_ERROR(LoadExperts(rank, weights, placement));
  if (config_.shared_intermediate == 0) return absl::OkStatus();
  const WeightFormat format = PlainWeights(config_);
  OCTET_RETURN_IF_ERROR(Upload(mine.shared_first, {}, 0, PackGateUp(weights.shared, format)));
  return Upload(mine.shared_second, {}, 0, PackMatrix(weights.shared.down, format));
}

}  // namespace octet
