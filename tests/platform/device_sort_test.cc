// The contract of device_sort.h, the same on every platform.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "octet/node.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/platform/device_sort_kernels.h"

namespace octet {
namespace {

// Sorts `keys` with values 0, 1, 2, ... on the GPU, after something else on the same stream has
// written the keys.
absl::Status Sort(Rank& rank, std::vector<uint32_t>& keys, int key_bits,
                  std::vector<int32_t>& values) {
  const int n = static_cast<int>(keys.size());
  const size_t bytes = keys.size() * sizeof(uint32_t);
  std::vector<int32_t> iota(keys.size());
  std::iota(iota.begin(), iota.end(), 0);
  std::vector<DeviceMemory> memory(4);
  for (DeviceMemory& each : memory) {
    OCTET_ASSIGN_OR_RETURN(each, DeviceMemory::Allocate(bytes));
  }
  size_t temp_bytes = 0;
  OCTET_RETURN_IF_GPU_ERROR(SortPairs(nullptr, &temp_bytes, nullptr, nullptr, nullptr, nullptr, n,
                                      key_bits, rank.stream()));
  OCTET_ASSIGN_OR_RETURN(const DeviceMemory temp, DeviceMemory::Allocate(temp_bytes));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(memory[0].as<void>(), keys.data(), bytes,
                                           hipMemcpyHostToDevice, rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(memory[2].as<void>(), iota.data(), bytes,
                                           hipMemcpyHostToDevice, rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(SortPairs(temp.as<void>(), &temp_bytes, memory[0].as<uint32_t>(),
                                      memory[1].as<uint32_t>(), memory[2].as<int32_t>(),
                                      memory[3].as<int32_t>(), n, key_bits, rank.stream()));
  values.resize(keys.size());
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(keys.data(), memory[1].as<void>(), bytes,
                                           hipMemcpyDeviceToHost, rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(values.data(), memory[3].as<void>(), bytes,
                                           hipMemcpyDeviceToHost, rank.stream()));
  return rank.Synchronize();
}

TEST(DeviceSortTest, IsStable) {
  auto node = Node::Create({.num_ranks = 1});
  if (!node.ok()) GTEST_SKIP() << node.status();
  std::mt19937 rng(3);
  for (const int bits : {1, 4, 9, 12}) {
    for (const int n : {1, 2, 63, 1000, 5000}) {
      std::vector<uint32_t> keys(static_cast<size_t>(n));
      for (uint32_t& key : keys) key = rng() & ((1U << bits) - 1);
      std::vector<int32_t> want(keys.size());
      std::iota(want.begin(), want.end(), 0);
      std::sort(want.begin(), want.end(), [&keys](int32_t a, int32_t b) {
        return std::make_pair(keys[static_cast<size_t>(a)], a) <
               std::make_pair(keys[static_cast<size_t>(b)], b);
      });
      std::vector<uint32_t> want_keys;
      for (const int32_t i : want) want_keys.push_back(keys[static_cast<size_t>(i)]);
      std::vector<int32_t> got;
      const absl::Status status =
          (*node)->Run([&](Rank& rank) { return Sort(rank, keys, bits, got); });
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(keys, want_keys) << n << " keys of " << bits << " bits";
      EXPECT_EQ(got, want) << n << " keys of " << bits << " bits";
    }
  }
}

}  // namespace
}  // namespace octet
