#include "tools/measure/layer/layer_contenders.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <utility>

#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

absl::StatusOr<LayerContenders::OfContender> LayerContenders::Make(const LayerLibraries& libraries,
                                                                   absl::string_view platform,
                                                                   const MoeLayerWeights& weights) {
  OfContender contender;
  contender.name = libraries.name();
  contender.y.resize(Size(node_.num_ranks()));
  OCTET_ASSIGN_OR_RETURN(contender.layer,
                         LayerContender::Create(node_, layer_.layer.config(), libraries, platform));
  OCTET_RETURN_IF_ERROR(contender.layer->Load(weights));
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) -> absl::Status {
    const size_t bytes = layer_.tokens.rows[Size(rank.rank())].size() * sizeof(uint16_t);
    OCTET_ASSIGN_OR_RETURN(contender.y[Size(rank.rank())],
                           DeviceMemory::Allocate(std::max<size_t>(bytes, 1)));
    return absl::OkStatus();
  }));
  return contender;
}

absl::Status LayerContenders::Init(const std::vector<LayerLibraries>& libraries,
                                   absl::string_view platform, const MoeLayerWeights& weights) {
  for (const LayerLibraries& each : libraries) {
    absl::StatusOr<OfContender> contender = Make(each, platform, weights);
    if (absl::IsUnavailable(contender.status()) || absl::IsResourceExhausted(contender.status()) ||
        absl::IsUnimplemented(contender.status())) {
      left_out_.push_back({each.name(), std::string(contender.status().message())});
      continue;
    }
    OCTET_RETURN_IF_ERROR(contender.status());
    contenders_.push_back(*std::move(contender));
  }
  // Loads what libraries load at the first call.
  return node_.Run([this](Rank& rank) -> absl::Status {
    for (OfContender& contender : contenders_) {
      OCTET_RETURN_IF_ERROR(CallOnRank(contender, rank));
    }
    return absl::OkStatus();
  });
}

absl::Status LayerContenders::CallOnRank(OfContender& contender, Rank& rank) {
  return contender.layer->Forward(rank, {.x = layer_.calls.x(rank),
                                         .count = layer_.tokens.count(rank.rank()),
                                         .routed = layer_.layer.Routed(rank),
                                         .y = contender.y[Size(rank.rank())].as<void>()});
}

absl::Status LayerContenders::Call(size_t i, Rank& rank) {
  return CallOnRank(contenders_[i], rank);
}

absl::StatusOr<std::vector<uint16_t>> LayerContenders::Read(size_t i) const {
  std::vector<std::vector<uint16_t>> of_ranks(Size(node_.num_ranks()));
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) -> absl::Status {
    std::vector<uint16_t>& mine = of_ranks[Size(rank.rank())];
    mine.resize(layer_.tokens.rows[Size(rank.rank())].size());
    if (mine.empty()) return absl::OkStatus();
    return OCTET_GPU(hipMemcpy(mine.data(), contenders_[i].y[Size(rank.rank())].as<void>(),
                               mine.size() * sizeof(uint16_t), hipMemcpyDeviceToHost));
  }));
  std::vector<uint16_t> y;
  for (const std::vector<uint16_t>& mine : of_ranks) y.insert(y.end(), mine.begin(), mine.end());
  return y;
}

}  // namespace octet
