// The measurements that others are held against: that they move what they say, and end.
#include "tools/measure/probe/ceilings.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "octet/topology.h"
#include "tools/measure/probe/latency_test.h"
#include "tools/measure/probe/link_test.h"

namespace octet {
namespace {

std::unique_ptr<Node> MakeNode(int ranks) {
  const auto topology = DiscoverTopology();
  if (!topology.ok() || !topology->CheckRanks(ranks).ok()) return nullptr;
  auto node = Node::Create({.num_ranks = ranks});
  EXPECT_TRUE(node.ok()) << node.status();
  return node.ok() ? *std::move(node) : nullptr;
}

TEST(CeilingsTest, EveryMoverMovesEveryByteAndNoMore) {
  const std::unique_ptr<Node> node = MakeNode(3);
  if (node == nullptr) GTEST_SKIP() << "needs three GPUs";
  constexpr int64_t kBytes = 100'000;
  auto links = LinkTest::Create(*node, kBytes);
  ASSERT_TRUE(links.ok()) << links.status();
  for (const auto& [mover, name] : EnumTable(Mover{})) {
    for (const int row_bytes : {16, 1040, kRowBytes}) {
      for (const int blocks : {1, 3, 0}) {
        for (const bool pair : {false, true}) {
          const LinkLoad load = {.mover = mover,
                                 .from = pair ? 2 : -1,
                                 .to = pair ? 0 : -1,
                                 .blocks = blocks,
                                 .row_bytes = row_bytes};
          const absl::Status status = (*links)->Verify(load);
          EXPECT_TRUE(status.ok()) << name << ", rows of " << row_bytes << ", " << blocks
                                   << " blocks, " << (pair ? "pair" : "all") << ": " << status;
          const auto run = (*links)->Run(load);
          ASSERT_TRUE(run.ok()) << run.status();
          EXPECT_GT(run->us, 0);
          EXPECT_GT(run->bytes, kBytes - 2 * 2 * row_bytes);
          EXPECT_LE(run->bytes, kBytes);
        }
      }
    }
  }
}

TEST(CeilingsTest, LoadsThatCannotBeAreRefused) {
  const std::unique_ptr<Node> node = MakeNode(2);
  if (node == nullptr) GTEST_SKIP() << "needs two GPUs";
  auto links = LinkTest::Create(*node, 1000);
  ASSERT_TRUE(links.ok()) << links.status();
  for (const LinkLoad& load :
       {LinkLoad{.from = 0, .to = 0}, LinkLoad{.from = 0, .to = 2}, LinkLoad{.from = 1},
        LinkLoad{.row_bytes = 24}, LinkLoad{.row_bytes = 16, .bytes = 2000},
        LinkLoad{.row_bytes = 1008}}) {
    EXPECT_EQ((*links)->Run(load).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(CeilingsTest, LatenciesOfAllPairs) {
  const std::unique_ptr<Node> node = MakeNode(3);
  if (node == nullptr) GTEST_SKIP() << "needs three GPUs";
  auto test = LatencyTest::Create(*node);
  ASSERT_TRUE(test.ok()) << test.status();
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      const auto us = (*test)->FlagRoundTrip(from, to);
      EXPECT_EQ(us.ok(), from != to) << us.status();
      if (us.ok()) EXPECT_GT(*us, 0);
    }
  }
  for (int i = 0; i < 3; ++i) {
    const auto us = (*test)->NodeBarrier();
    ASSERT_TRUE(us.ok()) << us.status();
    EXPECT_GT(*us, 0);
  }
  // After a failure of anything on the node they start afresh.
  const absl::Status failed = node->Run([](Rank& rank) {
    return rank.rank() == 1 ? absl::InternalError("on purpose") : absl::OkStatus();
  });
  EXPECT_FALSE(failed.ok());
  EXPECT_TRUE((*test)->NodeBarrier().ok());
  EXPECT_TRUE((*test)->FlagRoundTrip(0, 2).ok());
  EXPECT_TRUE((*test)->LaunchSkew().ok());
}

TEST(CeilingsTest, AllAreMeasured) {
  const std::unique_ptr<Node> node = MakeNode(3);
  if (node == nullptr) GTEST_SKIP() << "needs three GPUs";
  const auto ceilings = MeasureCeilings(*node);
  ASSERT_TRUE(ceilings.ok()) << ceilings.status();
  for (const double Ceilings::* each :
       {&Ceilings::all_to_all_gbps, &Ceilings::loads_gbps, &Ceilings::bulk_gbps,
        &Ceilings::copy_engine_gbps, &Ceilings::pair_gbps, &Ceilings::empty_launch_us,
        &Ceilings::host_barrier_us, &Ceilings::node_barrier_us, &Ceilings::flag_round_trip_us,
        &Ceilings::clock_round_trip_us}) {
    EXPECT_GT((*ceilings).*each, 0);
  }
}

TEST(CeilingsTest, OneRankHasNoLinks) {
  const std::unique_ptr<Node> node = MakeNode(1);
  if (node == nullptr) GTEST_SKIP() << "needs a GPU";
  const auto ceilings = MeasureCeilings(*node);
  ASSERT_TRUE(ceilings.ok()) << ceilings.status();
  EXPECT_EQ(ceilings->all_to_all_gbps, 0);
  EXPECT_EQ(ceilings->flag_round_trip_us, 0);
  EXPECT_GT(ceilings->empty_launch_us, 0);
  EXPECT_GT(ceilings->node_barrier_us, 0);
}

}  // namespace
}  // namespace octet
