#include "tools/check/host_reader.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

absl::Status HostReader::Read(const void* from, size_t bytes, void* to) {
  return ForRows(from, bytes, 1, [to](size_t first, absl::Span<const uint8_t> piece) {
    std::memcpy(static_cast<char*>(to) + first, piece.data(), piece.size());
  });
}

absl::Status HostReader::ForRows(
    const void* from, size_t rows, size_t row_bytes,
    absl::FunctionRef<void(size_t first, absl::Span<const uint8_t>)> use) {
  const size_t at_once = staging_.bytes() / std::max<size_t>(row_bytes, 1);
  for (size_t first = 0; first < rows; first += at_once) {
    const size_t bytes = std::min(at_once, rows - first) * row_bytes;
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(staging_.as<void>(),
                                             static_cast<const char*>(from) + first * row_bytes,
                                             bytes, hipMemcpyDeviceToHost, rank_.stream()));
    OCTET_RETURN_IF_ERROR(rank_.Synchronize());
    use(first, absl::MakeConstSpan(staging_.as<uint8_t>(), bytes));
  }
  return absl::OkStatus();
}

}  // namespace octet
