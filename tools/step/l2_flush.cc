#include "tools/step/l2_flush.h"

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tools/step/read_kernel.h"

namespace octet {
namespace {

// The largest cache is the 256 MB one of an MI300X; the L2 of an H200 has 50 MB.
constexpr size_t kBytes = size_t{512} << 20;
constexpr size_t kEmulatedBytes = size_t{1} << 10;

}  // namespace

absl::StatusOr<L2Flush> L2Flush::Create(bool emulated) {
  L2Flush flush;
  OCTET_ASSIGN_OR_RETURN(
      flush.memory_, DeviceMemory::Allocate((emulated ? kEmulatedBytes : kBytes) + sizeof(uint4)));
  const DeviceMemory& memory = flush.memory_;
  OCTET_RETURN_IF_GPU_ERROR(hipMemset(memory.as<void>(), 0, memory.bytes()));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
  return flush;
}

absl::Status L2Flush::Enqueue(GpuStream stream) const {
  const auto* const data = memory_.as<const uint4>();
  const auto vecs = static_cast<int64_t>(memory_.bytes() / sizeof(uint4)) - 1;
  return OCTET_GPU(LaunchRead(
      data, vecs, memory_.as<uint32_t>() + vecs * (sizeof(uint4) / sizeof(uint32_t)), stream));
}

}  // namespace octet
