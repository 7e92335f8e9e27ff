// Which kind of memory things are in. The kinds differ on AMD GPUs alone, but emulated ones keep
// the flags that AMD GPUs would be asked for.
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/expert_parallel.h"
#include "octet/symmetric_heap.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

constexpr int kRanks = 2;

unsigned FlagsOf(const void* pointer) {
  hipPointerAttribute_t attributes = {};
  EXPECT_EQ(hipPointerGetAttributes(&attributes, pointer), hipSuccess);
  EXPECT_EQ(attributes.type, hipMemoryTypeDevice);
  return attributes.allocationFlags;
}

using HeapMemoryTest = NodeTest;

TEST_F(HeapMemoryTest, EachKindIsOfItsOwn) {
  MakeNode(kRanks);
  const auto heap = SymmetricHeap::Create(*node_, {.uncached = 4096, .cached = 512});
  ASSERT_OK(heap.status());
  EXPECT_EQ((*heap)->bytes(), 4096U);
  EXPECT_EQ((*heap)->bytes(HeapMemory::kCached), 512U);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(FlagsOf((*heap)->peers(0).base[rank]), hipDeviceMallocUncached);
    EXPECT_EQ(FlagsOf((*heap)->peers(0, HeapMemory::kCached).base[rank]),
              hipDeviceMallocFinegrained);
  }
  EXPECT_EQ(*(*heap)->AllocateBytes(512, 256), 0U);
  EXPECT_EQ(*(*heap)->AllocateBytes(512, 256, HeapMemory::kCached), 0U);
  EXPECT_EQ((*heap)->AllocateBytes(1, 256, HeapMemory::kCached).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(HeapMemoryTest, WithoutMemoryOfAKind) {
  MakeNode(kRanks);
  const auto heap = SymmetricHeap::Create(*node_, {.cached = 512});
  ASSERT_OK(heap.status());
  EXPECT_EQ((*heap)->bytes(), 0U);
  EXPECT_EQ((*heap)->peers(0).base[0], nullptr);
  EXPECT_EQ((*heap)->AllocateBytes(1, 256).status().code(), absl::StatusCode::kResourceExhausted);
}

class ReceivedMemoryTest : public testing::TestWithParam<EpConfig> {};

// The caller's kernels read no uncached memory.
TEST_P(ReceivedMemoryTest, IsNotUncached) {
  EpConfig config = GetParam();
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 128;
  config.max_tokens_per_rank = 4;
  config.tuning = {.blocks = 4, .waves_per_block = 2};
  const auto harness = EpHarness::Create(kRanks, config);
  ASSERT_OK(harness.status());
  std::mt19937_64 rng(1);
  ASSERT_OK((*harness)->Step(RandomStep(rng, config, std::vector<int>(kRanks, 4))));
  for (int rank = 0; rank < kRanks; ++rank) {
    const Received& received = (*harness)->received(rank);
    EXPECT_NE(FlagsOf(received.x), hipDeviceMallocUncached);
    EXPECT_EQ(FlagsOf((*harness)->heap().peers(0).base[rank]), hipDeviceMallocUncached);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, ReceivedMemoryTest,
                         testing::Values(EpConfig{.strategy = Strategy::kDirect},
                                         EpConfig{.strategy = Strategy::kLowLatency},
                                         EpConfig{.strategy = Strategy::kHighThroughput},
                                         EpConfig{.strategy = Strategy::kHighThroughput,
                                                  .combine_method = CombineMethod::kPull}),
                         [](const auto& info) { return "Case" + std::to_string(info.index); });

}  // namespace
}  // namespace octet
