// A count or an index as a size_t, for containers.
#ifndef OCTET_RUNTIME_BASE_SIZE_H_
#define OCTET_RUNTIME_BASE_SIZE_H_

#include <cstddef>
#include <cstdint>

namespace octet {

// `n` must not be negative.
inline size_t Size(int64_t n) { return static_cast<size_t>(n); }

}  // namespace octet

#endif  // OCTET_RUNTIME_BASE_SIZE_H_
