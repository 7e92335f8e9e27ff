// Copies GPU memory to the host: through pinned memory, and in pieces if there is much of it.
#ifndef OCTET_TOOLS_CHECK_HOST_READER_H_
#define OCTET_TOOLS_CHECK_HOST_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "runtime/memory/pinned_memory.h"

namespace octet {

// Reads one rank's memory, on its thread inside Node::Run. Every call waits for the rank's stream.
class HostReader {
 public:
  // Both must outlive it. `staging` holds at least one row.
  HostReader(Rank& rank, const PinnedMemory& staging) : rank_(rank), staging_(staging) {}

  absl::Status Read(const void* from, size_t bytes, void* to);
  template <typename T>
  absl::Status Read(const void* from, size_t count, std::vector<T>& to) {
    to.resize(count);
    return Read(from, count * sizeof(T), static_cast<void*>(to.data()));
  }

  // Reads `rows` rows of `row_bytes` bytes. Calls use(first, some whole rows) on the staged copies.
  absl::Status ForRows(const void* from, size_t rows, size_t row_bytes,
                       absl::FunctionRef<void(size_t first, absl::Span<const uint8_t>)> use);

 private:
  Rank& rank_;
  const PinnedMemory& staging_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CHECK_HOST_READER_H_
