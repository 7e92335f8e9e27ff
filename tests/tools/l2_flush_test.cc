#include "tools/step/l2_flush.h"

#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octet/topology.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/node/node_fixture.h"
#include "tools/step/read_kernel.h"

namespace octet {
namespace {

constexpr size_t kWordsOfVec = sizeof(uint4) / sizeof(uint32_t);

// Returns what the kernel has stored after it read `words`.
uint32_t FoundIn(const std::vector<uint32_t>& words) {
  const size_t bytes = words.size() * sizeof(uint32_t);
  auto memory = DeviceMemory::Allocate(bytes + sizeof(uint4));
  EXPECT_OK(memory.status());
  EXPECT_EQ(hipMemcpy(memory->as<void>(), words.data(), bytes, hipMemcpyHostToDevice), hipSuccess);
  uint32_t* const on_gpu = memory->as<uint32_t>() + words.size();
  uint32_t found = 7;
  EXPECT_EQ(hipMemcpy(on_gpu, &found, sizeof(found), hipMemcpyHostToDevice), hipSuccess);
  EXPECT_EQ(LaunchRead(memory->as<const uint4>(), static_cast<int64_t>(words.size() / kWordsOfVec),
                       on_gpu, nullptr),
            hipSuccess);
  EXPECT_EQ(hipMemcpy(&found, on_gpu, sizeof(found), hipMemcpyDeviceToHost), hipSuccess);
  return found;
}

// Memory that the flush skipped would displace nothing from the caches.
TEST(L2FlushTest, EveryWordIsReadAndNothingIsStored) {
  if (!DiscoverTopology().ok()) GTEST_SKIP() << "no GPU";
  // Not a multiple of what the blocks of a launch read at once.
  std::vector<uint32_t> words(3001 * kWordsOfVec);
  EXPECT_EQ(FoundIn(words), 7U);
  for (const size_t one : {size_t{0}, size_t{6}, words.size() / 2 + 1, words.size() - 1}) {
    words[one] = 1;
    EXPECT_EQ(FoundIn(words), 1U) << "word " << one;
    words[one] = 0;
  }
}

TEST(L2FlushTest, IsEnqueuedLikeAnyKernel) {
  const auto topology = DiscoverTopology();
  if (!topology.ok()) GTEST_SKIP() << "no GPU";
  const auto flush = L2Flush::Create(topology->emulated());
  ASSERT_OK(flush.status());
  EXPECT_OK(flush->Enqueue(nullptr));
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
}

}  // namespace
}  // namespace octet
