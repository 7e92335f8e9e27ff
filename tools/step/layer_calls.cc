#include "tools/step/layer_calls.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "octet/topology.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

template <typename T>
void Append(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

absl::Status LayerCalls::Init() {
  return node_.Run([this](Rank& rank) { return InitRank(rank); });
}

absl::Status LayerCalls::CallOnce() {
  return node_.Run([this](Rank& rank) { return Call(rank); });
}

absl::Status LayerCalls::Capture(Rank& rank) {
  OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, [&] { return Call(rank); }));
  MemoryOf(rank).graph.push_back(std::move(graph));
  return absl::OkStatus();
}

absl::Status LayerCalls::Call(Rank& rank) {
  const OfRank& mine = MemoryOf(rank);
  return layer_.Forward(rank, mine.x.as<void>(), tokens_.count(rank.rank()), mine.y.as<void>());
}

absl::Status LayerCalls::Launch(Rank& rank) { return MemoryOf(rank).graph.back().Launch(rank); }

absl::Status LayerCalls::Flush(const Rank& rank) const {
  return memory_[Size(rank.rank())].flush.Enqueue(rank.stream());
}

absl::Status LayerCalls::InitRank(Rank& rank) {
  OfRank& mine = MemoryOf(rank);
  const std::vector<uint16_t>& rows = tokens_.rows[Size(rank.rank())];
  const size_t bytes = rows.size() * sizeof(uint16_t);
  OCTET_ASSIGN_OR_RETURN(mine.x, DeviceMemory::Allocate(std::max<size_t>(bytes, 1)));
  OCTET_ASSIGN_OR_RETURN(mine.y, DeviceMemory::Allocate(std::max<size_t>(bytes, 1)));
  OCTET_ASSIGN_OR_RETURN(mine.flush, L2Flush::Create(node_.topology().emulated()));
  if (bytes == 0) return absl::OkStatus();
  return OCTET_GPU(hipMemcpy(mine.x.as<void>(), rows.data(), bytes, hipMemcpyHostToDevice));
}

absl::Status LayerCalls::ReadRank(const Rank& rank, LayerOutput& output) const {
  const MoeLayerConfig& config = layer_.config();
  const auto tokens = Size(tokens_.count(rank.rank()));
  if (tokens == 0) return absl::OkStatus();
  const OfRank& mine = memory_[Size(rank.rank())];
  const RoutedTokens routed = layer_.Routed(rank);
  output.x = tokens_.rows[Size(rank.rank())];
  output.y.resize(tokens * Size(config.hidden));
  std::vector<float> logits(tokens * Size(routed.stride));
  output.topk_idx.resize(tokens * Size(config.topk));
  output.topk_weights.resize(tokens * Size(config.topk));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(output.y.data(), mine.y.as<void>(),
                                      output.y.size() * sizeof(uint16_t), hipMemcpyDeviceToHost));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(logits.data(), routed.logits, logits.size() * sizeof(float),
                                      hipMemcpyDeviceToHost));
  for (size_t token = 0; token < tokens; ++token) {
    const auto row = logits.begin() + static_cast<ptrdiff_t>(token * Size(routed.stride));
    output.logits.insert(output.logits.end(), row, row + LogitsOf(config));
  }
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(output.topk_idx.data(), routed.topk_idx,
                                      output.topk_idx.size() * sizeof(int32_t),
                                      hipMemcpyDeviceToHost));
  return OCTET_GPU(hipMemcpy(output.topk_weights.data(), routed.topk_weights,
                             output.topk_weights.size() * sizeof(float), hipMemcpyDeviceToHost));
}

absl::StatusOr<LayerOutput> LayerCalls::Read() {
  std::vector<LayerOutput> outputs(memory_.size());
  OCTET_RETURN_IF_ERROR(
      node_.Run([&](Rank& rank) { return ReadRank(rank, outputs[Size(rank.rank())]); }));
  LayerOutput all;
  for (const LayerOutput& output : outputs) {
    Append(output.x, all.x);
    Append(output.y, all.y);
    Append(output.logits, all.logits);
    Append(output.topk_idx, all.topk_idx);
    Append(output.topk_weights, all.topk_weights);
  }
  return all;
}

}  // namespace octet
