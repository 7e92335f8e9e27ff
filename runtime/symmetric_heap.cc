#include "runtime/symmetric_heap.h"

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/device/peers.h"
#include "runtime/gpu_status.h"
#include "runtime/node.h"
#include "runtime/status_macros.h"

namespace octet {

SymmetricHeap::SymmetricHeap(Node& node, size_t bytes)
    : node_(node), bytes_(bytes), bases_(node.num_ranks(), nullptr) {}

absl::StatusOr<std::unique_ptr<SymmetricHeap>> SymmetricHeap::Create(Node& node, size_t bytes) {
  if (bytes == 0 || bytes > std::numeric_limits<size_t>::max() - kAlignment) {
    return absl::InvalidArgumentError(absl::StrCat("a symmetric heap of ", bytes, " bytes"));
  }
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto heap = std::unique_ptr<SymmetricHeap>(new SymmetricHeap(node, bytes));
  OCTET_RETURN_IF_ERROR(node.Run([&heap, bytes](Rank& rank) -> absl::Status {
    void* base = nullptr;
    const hipError_t error = hipExtMallocWithFlags(&base, bytes, hipDeviceMallocUncached);
    OCTET_RETURN_IF_ERROR(
        GpuStatus(error, absl::StrCat("symmetric heap of ", bytes, " bytes on every rank")));
    heap->bases_[rank.rank()] = static_cast<char*>(base);
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(base, 0, bytes, rank.stream()));
    return rank.Synchronize();
  }));
  return heap;
}

SymmetricHeap::~SymmetricHeap() {
  if (node_.stuck()) return;
  for (char* base : bases_) {
    if (base != nullptr) (void)hipFree(base);
  }
}

absl::StatusOr<size_t> SymmetricHeap::AllocateBytes(size_t bytes, size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("alignment ", alignment, " is not a power of two"));
  }
  if (alignment < kAlignment) alignment = kAlignment;
  for (const char* base : bases_) {
    if (reinterpret_cast<uintptr_t>(base) % alignment != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("alignment ", alignment, " is more than the heaps themselves have"));
    }
  }
  const size_t padding = (alignment - used_ % alignment) % alignment;
  const size_t left = bytes_ - used_;
  if (padding > left || bytes > left - padding) {
    return absl::ResourceExhaustedError(absl::StrCat("symmetric heap: ", bytes,
                                                     " bytes aligned to ", alignment, " needed, ",
                                                     left, " of ", bytes_, " left"));
  }
  const size_t offset = used_ + padding;
  used_ = offset + bytes;
  return offset;
}

device::PeerBases SymmetricHeap::peers(int rank) const {
  device::PeerBases peers = {};
  for (size_t r = 0; r < bases_.size(); ++r) peers.base[r] = bases_[r];
  peers.rank = rank;
  peers.num_ranks = static_cast<int>(bases_.size());
  return peers;
}

}  // namespace octet
