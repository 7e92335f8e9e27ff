// Arrays as the bytes that processes tell each other.
#ifndef OCTET_TOOLS_SUPPORT_BYTES_H_
#define OCTET_TOOLS_SUPPORT_BYTES_H_

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

// Returns the bytes of `values`, which must outlive them.
template <typename T>
absl::string_view BytesOf(absl::Span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Appends the values that `bytes` are. Returns false if they are no whole number of them.
template <typename T>
bool AppendBytes(absl::string_view bytes, std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() % sizeof(T) != 0) return false;
  if (bytes.empty()) return true;
  const size_t before = values.size();
  values.resize(before + bytes.size() / sizeof(T));
  std::memcpy(values.data() + before, bytes.data(), bytes.size());
  return true;
}

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_BYTES_H_
