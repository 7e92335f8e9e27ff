#include "octet/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 5 experts on 3 ranks with 3 slots: expert 1 on all ranks, 4 on two.
Placement Replicated() { return *Placement::Create(5, 3, {0, 1, 4, 1, 2, -1, 4, 1, 3}); }

void ExpectRefused(int num_experts, int num_ranks, absl::Span<const int32_t> slots,
                   absl::string_view sentence) {
  const absl::StatusOr<Placement> placement = Placement::Create(num_experts, num_ranks, slots);
  EXPECT_EQ(placement.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(placement.status().message()), HasSubstr(std::string(sentence)));
}

TEST(PlacementTest, ReplicasHaveTheNumbersOfTheirSlots) {
  const Placement placement = Replicated();
  EXPECT_FALSE(placement.empty());
  EXPECT_EQ(placement.num_experts(), 5);
  EXPECT_EQ(placement.num_ranks(), 3);
  EXPECT_EQ(placement.slots_per_rank(), 3);
  EXPECT_THAT(placement.ReplicasOf(0), ElementsAre(0));
  EXPECT_THAT(placement.ReplicasOf(1), ElementsAre(1, 3, 7));
  EXPECT_THAT(placement.ReplicasOf(3), ElementsAre(8));
  EXPECT_THAT(placement.ReplicasOf(4), ElementsAre(2, 6));
  EXPECT_EQ(placement.ReplicaOn(0, 4), 2);
  EXPECT_EQ(placement.ReplicaOn(1, 4), -1);
  EXPECT_EQ(placement.ReplicaOn(2, 4), 6);
  EXPECT_TRUE(Placement().empty());
  EXPECT_EQ(Placement().slots_per_rank(), 0);
}

TEST(PlacementTest, WhatCannotBeIsRefused) {
  ExpectRefused(5, 0, {0, 1, 2, 3, 4}, "num_ranks is 0; it must be from 1");
  ExpectRefused(0, 1, {0}, "num_experts is 0; it must be from 1");
  ExpectRefused(5, 2, {}, "has 0 slots on 2 ranks");
  ExpectRefused(5, 2, {0, 1, 2, 3, 4}, "has 5 slots on 2 ranks; it must have as many on each");
  ExpectRefused(4, 2, {0, 1, 2, 4, 3, -1}, "rank 1, slot 0: the expert is 4; it must be from 0 to");
  ExpectRefused(4, 2, {0, 1, 2, 3, -2, -1}, "rank 1, slot 1: the expert is -2");
  ExpectRefused(4, 2, {0, 1, 2, 3, 0, 3}, "rank 1 has expert 3 in the slots 0 and 2");
  ExpectRefused(4, 2, {0, 1, 3, -1}, "expert 2 has no slot");
}

TEST(PlacementTest, InOrderIsWhereExpertsLiveWithoutAPlacement) {
  const Placement even = *Placement::InOrder(12, 4);
  EXPECT_EQ(even.slots_per_rank(), 3);
  for (int e = 0; e < 12; ++e) EXPECT_THAT(even.ReplicasOf(e), ElementsAre(e));
  const Placement uneven = *Placement::InOrder(60, 8);
  EXPECT_EQ(uneven.slots_per_rank(), 8);
  std::vector<int> of_rank(8);
  for (int e = 0; e < 60; ++e) {
    ASSERT_EQ(uneven.ReplicasOf(e).size(), 1);
    ++of_rank[static_cast<size_t>(uneven.ReplicasOf(e)[0] / 8)];
  }
  EXPECT_THAT(of_rank, ElementsAre(7, 8, 7, 8, 7, 8, 7, 8));
  const Placement few = *Placement::InOrder(2, 5);
  EXPECT_EQ(few.slots_per_rank(), 1);
}

TEST(PlacementTest, TokensStayOnTheirRankIfItHasAReplica) {
  const Placement placement = Replicated();
  for (int token = 0; token < 100; ++token) {
    EXPECT_EQ(placement.PhysicalOf(1, 0, token), 1);
    EXPECT_EQ(placement.PhysicalOf(1, 1, token), 3);
    EXPECT_EQ(placement.PhysicalOf(1, 2, token), 7);
    EXPECT_EQ(placement.PhysicalOf(4, 2, token), 6);
    EXPECT_EQ(placement.PhysicalOf(3, 0, token), 8);
  }
}

// The function is part of the contract: recorded runs must give the same bits.
TEST(PlacementTest, TheChoiceAmongReplicasIsAFixedFunction) {
  const Placement placement = Replicated();
  std::vector<int32_t> chosen;
  for (int token = 0; token < 12; ++token) chosen.push_back(placement.PhysicalOf(4, 1, token));
  // u = 0.5698 + 0.7549 · token, without its whole part.
  std::vector<int32_t> wanted;
  for (int token = 0; token < 12; ++token) {
    const double u = 0.569840290998 + 0.754877666247 * token;
    wanted.push_back(u - std::floor(u) < 0.5 ? 2 : 6);
  }
  EXPECT_EQ(chosen, wanted);
}

TEST(PlacementTest, ReplicasHaveEqualShares) {
  for (const int replicas : {2, 3, 5, 7}) {
    // Expert 0 on the first ranks only; the last ranks have it not.
    const int num_ranks = replicas + 2;
    std::vector<int32_t> slots;
    for (int rank = 0; rank < num_ranks; ++rank) slots.push_back(rank < replicas ? 0 : 1);
    const Placement placement = *Placement::Create(2, num_ranks, slots);
    for (const int source : {replicas, replicas + 1}) {
      for (const int step : {1, 2, 3, 4, 8, 60, 64, 100, 128}) {
        constexpr int kTokens = 1024;
        std::map<int32_t, int> tokens;
        for (int i = 0; i < kTokens; ++i) ++tokens[placement.PhysicalOf(0, source, i * step)];
        for (int replica = 0; replica < replicas; ++replica) {
          EXPECT_NEAR(tokens[replica], 1.0 * kTokens / replicas, 20)
              << replicas << " replicas, every " << step << ". token";
        }
      }
    }
    // The first tokens of many ranks do not all meet at one replica, either.
    std::vector<int32_t> wide(64, 1);
    for (int rank = 0; rank < replicas; ++rank) wide[static_cast<size_t>(rank)] = 0;
    const Placement many = *Placement::Create(2, 64, wide);
    std::map<int32_t, int> tokens;
    for (int source = replicas; source < 64; ++source) ++tokens[many.PhysicalOf(0, source, 0)];
    for (int replica = 0; replica < replicas; ++replica) {
      EXPECT_NEAR(tokens[replica], 1.0 * (64 - replicas) / replicas, 3) << replicas;
    }
  }
}

TEST(PlacementTest, LoadsOfRanksAreWhatTheyReceive) {
  const Placement placement = Replicated();
  const std::vector<double> loads = {100, 900, 300, 500, 600};
  EXPECT_THAT(placement.LoadsOfRanks(loads), ElementsAre(700, 600, 1100));
  // The same, counted: each rank sends a third of each expert's rows.
  constexpr int kTokens = 3000;
  std::vector<double> counted(3);
  for (int source = 0; source < 3; ++source) {
    for (int expert = 0; expert < 5; ++expert) {
      for (int token = 0; token < kTokens; ++token) {
        const int rank = placement.PhysicalOf(expert, source, token) / 3;
        counted[static_cast<size_t>(rank)] += loads[static_cast<size_t>(expert)] / (3.0 * kTokens);
      }
    }
  }
  const std::vector<double> stated = placement.LoadsOfRanks(loads);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_NEAR(counted[rank], stated[rank], 2);
}

}  // namespace
}  // namespace octet
