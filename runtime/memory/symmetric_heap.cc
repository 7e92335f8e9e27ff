#include "octet/symmetric_heap.h"

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "heap_memory.h"
#include "octet/node.h"
#include "octet/peers.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/rank_threads.h"

namespace octet {

absl::StatusOr<std::unique_ptr<SymmetricHeap>> SymmetricHeap::Create(Node& node,
                                                                     const HeapSize& size) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max() / 2 - kAlignment;
  if (size.uncached > kMost || size.cached > kMost || size.total() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a symmetric heap of ", size.uncached, " uncached and ", size.cached,
                     " cached bytes; it must have some, as many as HeapBytes of its objects says"));
  }
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("SymmetricHeap::Create"));
  auto heap = std::unique_ptr<SymmetricHeap>(new SymmetricHeap(node));
  OCTET_RETURN_IF_ERROR(heap->Allocate(HeapMemory::kUncached, size.uncached));
  OCTET_RETURN_IF_ERROR(heap->Allocate(HeapMemory::kCached, size.cached));
  return heap;
}

absl::Status SymmetricHeap::Allocate(HeapMemory kind, size_t bytes) {
  Part& mine = part(kind);
  mine.bases.assign(static_cast<size_t>(node_->num_ranks()), nullptr);
  if (bytes == 0) return absl::OkStatus();
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  OCTET_RETURN_IF_ERROR(node_->Run([&mine, kind, bytes](Rank& rank) -> absl::Status {
    void* base = nullptr;
    const hipError_t error = platform::AllocateHeap(kind == HeapMemory::kCached, bytes, &base);
    OCTET_RETURN_IF_ERROR(
        GpuStatus(error, absl::StrCat("symmetric heap of ", bytes, " bytes on every rank")));
    mine.bases[static_cast<size_t>(rank.rank())] = static_cast<char*>(base);
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(base, 0, bytes, rank.stream()));
    return rank.Synchronize();
  }));
  mine.bytes = bytes;
  return absl::OkStatus();
}

SymmetricHeap::~SymmetricHeap() {
  if (!node_->ReadyToFree()) return;
  for (const Part& part : parts_) {
    for (char* base : part.bases) {
      if (base != nullptr) (void)hipFree(base);
    }
  }
}

absl::StatusOr<size_t> SymmetricHeap::AllocateBytes(size_t bytes, size_t alignment,
                                                    HeapMemory kind) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("alignment ", alignment, " is not a power of two"));
  }
  if (alignment < kAlignment) alignment = kAlignment;
  Part& mine = part(kind);
  for (const char* base : mine.bases) {
    if (reinterpret_cast<uintptr_t>(base) % alignment != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("alignment ", alignment, " is more than the heaps themselves have"));
    }
  }
  const size_t padding = (alignment - mine.used % alignment) % alignment;
  const size_t left = mine.bytes - mine.used;
  if (padding > left || bytes > left - padding) {
    return absl::ResourceExhaustedError(
        absl::StrCat("symmetric heap: ", bytes, kind == HeapMemory::kCached ? " cached" : "",
                     " bytes aligned to ", alignment, " needed, ", left, " of ", mine.bytes,
                     " left; create it with what HeapBytes of all its objects says together"));
  }
  const size_t offset = mine.used + padding;
  mine.used = offset + bytes;
  return offset;
}

device::PeerBases SymmetricHeap::peers(int rank, HeapMemory kind) const {
  const std::vector<char*>& bases = part(kind).bases;
  device::PeerBases peers = {};
  for (size_t r = 0; r < bases.size(); ++r) peers.base[r] = bases[r];
  peers.rank = rank;
  peers.num_ranks = static_cast<int>(bases.size());
  return peers;
}

}  // namespace octet
