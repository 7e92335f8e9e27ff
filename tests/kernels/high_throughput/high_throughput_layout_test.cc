// Sizes of high_throughput: shared memory, parts of rows, the heap, bytes on the wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/layout.h"
#include "octet/expert_parallel.h"
#include "octet/peers.h"
#include "tests/kernels/high_throughput/high_throughput_fixture.h"

namespace octet {
namespace {

EpConfig PrefillConfig() {
  EpConfig config;
  config.num_experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens_per_rank = 4096;
  config.strategy = Strategy::kHighThroughput;
  return config;
}

// More would have to be asked for, before each first launch of a kernel on a GPU.
TEST(HighThroughputLayoutTest, SharedMemoryOfADispatchIsWhatEveryGpuGives) {
  constexpr size_t kBytes = 48 * 1024;
  constexpr size_t kDeclared = 512;  // in the kernel, at most
  EpConfig config = PrefillConfig();
  for (int num_ranks = 1; num_ranks <= kMaxRanks; ++num_ranks) {
    for (int experts = num_ranks; experts <= kMaxExperts; experts += num_ranks) {
      config.num_experts = experts;
      config.tuning.row_parts = 1;
      const high_throughput::Layout layout = high_throughput::MakeLayout(config, num_ranks);
      for (const int waves : {1, 12, 24}) {
        ASSERT_LE(high_throughput::SharedOfDispatch(layout, false, waves).bytes, kBytes - kDeclared)
            << num_ranks << " ranks, " << experts << " experts, " << waves << " waves";
      }
    }
  }
}

TEST(HighThroughputLayoutTest, FewBlocksWithManyTokensMoveWholeRows) {
  EpConfig config = PrefillConfig();
  const auto parts = [&config](int max_blocks, int num_ranks) {
    config.max_blocks = max_blocks;
    return high_throughput::ChooseRowParts(config, num_ranks);
  };
  EXPECT_EQ(parts(0, 8), 2);
  EXPECT_EQ(parts(24, 2), 1);
  EXPECT_EQ(parts(64, 8), 1);
  EXPECT_EQ(parts(65, 8), 2);
  config.tuning.blocks = 24;
  EXPECT_EQ(parts(80, 2), 1) << "the caller's number of blocks counts";
  config.tuning.blocks = 0;
  config.max_tokens_per_rank = 512;
  EXPECT_EQ(parts(24, 2), 2);
  config.hidden = 1536;
  EXPECT_EQ(parts(0, 2), 1);
}

TEST(HighThroughputMemoryTest, HeapStaysWithinItsLimits) {
  EpConfig config = PrefillConfig();
  const auto check = [&config](int ranks) {
    const int choices = std::min(config.topk, config.num_local_experts(ranks));
    const double rows = static_cast<double>(ranks) * config.max_tokens_per_rank *
                        (config.output == Output::kDeduplicated ? 1 : choices);
    EXPECT_LE(static_cast<double>(ExpertParallel::HeapBytes(config, ranks)->total()),
              1.5 * rows * 2 * config.hidden)
        << ranks << " ranks, topk " << config.topk << ", hidden " << config.hidden
        << ", combine_order " << static_cast<int>(config.combine_order);
  };
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    for (const auto& [hidden, max_tokens] : {std::pair(7168, 4096), {1536, 32768}}) {
      for (const DispatchFormat format : {DispatchFormat::kSame, DispatchFormat::kFp8}) {
        for (const int topk : {1, 2, 4, 8}) {
          config = PrefillConfig();
          config.num_experts = 32 * ranks;
          config.topk = topk;
          config.hidden = hidden;
          config.max_tokens_per_rank = max_tokens;
          config.dispatch_format = format;
          check(ranks);
          config.combine_order = CombineOrder::kFlat;
          check(ranks);
          config.high_throughput.duplicates = Duplicates::kIndex;
          check(ranks);
          config.combine_order = CombineOrder::kPerRank;
          check(ranks);
          config.high_throughput.duplicates = Duplicates::kFill;
          config.output = Output::kDeduplicated;
          check(ranks);
        }
      }
    }
  }
}

TEST_F(HighThroughputTest, TrafficIsWhatIsStoredIntoPeers) {
  EpConfig config = Config(4, 2, 64, 4);
  for (const CombineMethod method : {CombineMethod::kPush, CombineMethod::kPull}) {
    config.combine_method = method;
    MAKE_OR_SKIP(2, config);
    const std::vector<int32_t> topk_idx = {0, 1, 2, 3, 1, 2, -1, 3};
    // Three tokens and four choices go to rank 1. Beside a row of 128 bytes a packet: the flag, the
    // combine's slot, and 12 bytes for each choice; then six counts and two credits.
    const Traffic dispatch = ep().DispatchTraffic(0, topk_idx);
    EXPECT_EQ(dispatch.rows, 5);
    EXPECT_EQ(dispatch.logical_bytes, 5 * 128);
    EXPECT_EQ(dispatch.wire_bytes, 3 * (128 + 8 + 4) + 4 * 12 + (6 + 2) * 8);
    // Three sums with a flag each, and a credit.
    const Traffic combine = ep().CombineTraffic(0, topk_idx);
    EXPECT_EQ(combine.rows, 5);
    EXPECT_EQ(combine.wire_bytes, 3 * (128 + 8) + 8);
  }
}

}  // namespace
}  // namespace octet
