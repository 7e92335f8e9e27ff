// A stable sort of pairs in a GPU's memory, using the standard library. runtime/platform/README.md
// states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_DEVICE_SORT_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_DEVICE_SORT_H_

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace octet::device {

// NOLINTNEXTLINE(readability-function-size): CUB's parameters
inline hipError_t SortPairs(void* temp, size_t* temp_bytes, const uint32_t* keys,
                            uint32_t* sorted_keys, const int32_t* values, int32_t* sorted_values,
                            int n, int /*key_bits*/, hipStream_t stream) {
  if (temp == nullptr) {
    *temp_bytes = 1;
    return hipSuccess;
  }
  auto sort = [=] {
    std::vector<int> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [=](int a, int b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
    for (int i = 0; i < n; ++i) {
      const int from = order[static_cast<size_t>(i)];
      sorted_keys[i] = keys[from];
      sorted_values[i] = values[from];
    }
  };
  using Sort = decltype(sort);
  auto call = std::make_unique<Sort>(std::move(sort));
  const auto run = [](void* argument) {
    const std::unique_ptr<Sort> owned(static_cast<Sort*>(argument));
    (*owned)();
  };
  const hipError_t error = hipLaunchHostFunc(stream, run, call.get());
  // NOLINTNEXTLINE(bugprone-unused-return-value): `run` owns it
  if (error == hipSuccess) static_cast<void>(call.release());
  return error;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_DEVICE_SORT_H_
