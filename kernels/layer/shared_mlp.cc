#include "kernels/layer/shared_mlp.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/layer/layer_config.h"
#include "octet/dtype.h"
#include "runtime/base/status_macros.h"

namespace octet {

absl::StatusOr<std::unique_ptr<SharedMlp>> SharedMlp::Create(const MoeLayerConfig& config,
                                                             NodeMemory& memory) {
  auto mlp = std::unique_ptr<SharedMlp>(new SharedMlp());
  OCTET_ASSIGN_OR_RETURN(mlp->first_, GroupedGemm::Create(SharedFirstProduct(config)));
  OCTET_ASSIGN_OR_RETURN(mlp->second_, GroupedGemm::Create(SharedSecondProduct(config)));
  const size_t row = static_cast<size_t>(config.max_tokens_per_rank) * InfoOf(config.dtype).bytes;
  OCTET_ASSIGN_OR_RETURN(
      mlp->h_, memory.Device<char>(row * static_cast<size_t>(config.shared_intermediate)));
  OCTET_ASSIGN_OR_RETURN(mlp->out_, memory.Device<char>(row * static_cast<size_t>(config.hidden)));
  if (config.shared_experts == SharedExperts::kBeside) {
    OCTET_ASSIGN_OR_RETURN(mlp->side_, SideStream::Create());
  }
  return mlp;
}

absl::Status SharedMlp::First(hipStream_t stream) {
  first_enqueued_ = true;
  return first_->Run({.a = call_.x,
                      .b = call_.first,
                      .expert_offsets = call_.expert_offsets,
                      .out = h_.data(),
                      .rows = call_.tokens},
                     stream);
}

absl::Status SharedMlp::Second(hipStream_t stream) {
  second_enqueued_ = true;
  return second_->Run({.a = h_.data(),
                       .b = call_.second,
                       .expert_offsets = call_.expert_offsets,
                       .out = out_.data()},
                      stream);
}

absl::Status SharedMlp::Begin(const Rank& rank, const Call& call) {
  call_ = call;
  first_enqueued_ = false;
  second_enqueued_ = false;
  return side_.has_value() ? side_->MarkFork(rank) : absl::OkStatus();
}

// A product is enqueued after the kernel that it runs beside, so that this one, which moves rows,
// gets its compute units first; the product takes those that are left.
absl::Status SharedMlp::PartEnqueued(const Rank& rank, LayerPart part) {
  if (!side_.has_value()) return absl::OkStatus();
  if (!first_enqueued_ && (part == LayerPart::kDispatch || part == LayerPart::kFirstProduct)) {
    OCTET_RETURN_IF_ERROR(side_->Fork());
    return First(side_->stream());
  }
  if (second_enqueued_) return absl::OkStatus();  // beside the first pass of several
  if (part == LayerPart::kSecondProduct) return side_->MarkFork(rank);
  if (part != LayerPart::kCombine) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(side_->Fork());
  return Second(side_->stream());
}

absl::Status SharedMlp::End(const Rank& rank, bool after_error) {
  if (!after_error) {
    const hipStream_t stream = side_.has_value() ? side_->stream() : rank.stream();
    if (!first_enqueued_) OCTET_RETURN_IF_ERROR(First(stream));
    if (!second_enqueued_) OCTET_RETURN_IF_ERROR(Second(stream));
  }
  return side_.has_value() && first_enqueued_ ? side_->Join(rank) : absl::OkStatus();
}

void SharedMlp::Abandon(std::unique_ptr<SharedMlp> mlp) {
  if (mlp == nullptr) return;
  [[maybe_unused]] const GroupedGemm* const first = mlp->first_.release();
  [[maybe_unused]] const GroupedGemm* const second = mlp->second_.release();
  if (mlp->side_.has_value()) mlp->side_->Abandon();
}

}  // namespace octet
