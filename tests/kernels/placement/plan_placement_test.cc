#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "octet/placement.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

double Most(const std::vector<double>& loads) {
  return *std::max_element(loads.begin(), loads.end());
}

// The least load of the most loaded rank over all placements. An expert is put on every subset of
// the ranks in turn.
double BestOf(const std::vector<double>& loads, int num_ranks, int slots) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> of_rank(static_cast<size_t>(num_ranks));
  std::vector<int> used(static_cast<size_t>(num_ranks));
  const std::function<void(size_t)> place = [&](size_t expert) {
    if (Most(of_rank) >= best) return;
    if (expert == loads.size()) {
      best = Most(of_rank);
      return;
    }
    for (unsigned ranks = 1; ranks < 1U << num_ranks; ++ranks) {
      const double part = loads[expert] / __builtin_popcount(ranks);
      bool fits = true;
      for (size_t r = 0; r < of_rank.size(); ++r) {
        if (((ranks >> r) & 1) == 0) continue;
        of_rank[r] += part;
        fits = ++used[r] <= slots && fits;
      }
      if (fits) place(expert + 1);
      for (size_t r = 0; r < of_rank.size(); ++r) {
        if (((ranks >> r) & 1) == 0) continue;
        of_rank[r] -= part;
        --used[r];
      }
    }
  };
  place(0);
  return best;
}

std::vector<double> Zipf(int num_experts, double exponent, std::mt19937& random) {
  std::vector<double> loads;
  for (int n = 1; n <= num_experts; ++n) loads.push_back(1e6 * std::pow(n, -exponent));
  std::shuffle(loads.begin(), loads.end(), random);
  return loads;
}

TEST(PlanPlacementTest, SmallOnesAreNearTheBestOfAll) {
  std::mt19937 random(7);
  double sum_of_ratios = 0;
  int cases = 0;
  struct Shape {
    int experts, ranks, slots;
  };
  for (const Shape& shape : {Shape{3, 2, 2}, Shape{4, 2, 3}, Shape{5, 2, 3}, Shape{5, 3, 2},
                             Shape{6, 3, 3}, Shape{4, 4, 2}, Shape{7, 3, 3}, Shape{6, 2, 3}}) {
    for (int i = 0; i < 40; ++i) {
      std::vector<double> loads;
      for (int e = 0; e < shape.experts; ++e) {
        loads.push_back(std::floor(std::exp(std::uniform_real_distribution(0.0, 6.0)(random))));
      }
      const absl::StatusOr<Placement> plan = PlanPlacement(loads, shape.ranks, shape.slots);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const double best = BestOf(loads, shape.ranks, shape.slots);
      const double ratio = Most(plan->LoadsOfRanks(loads)) / best;
      ASSERT_GE(ratio, 1 - 1e-9) << "the search of all placements has missed one";
      EXPECT_LE(ratio, 4.0 / 3) << shape.experts << " experts, " << shape.ranks << " ranks, "
                                << shape.slots << " slots: " << absl::StrJoin(loads, " ");
      sum_of_ratios += ratio;
      ++cases;
    }
  }
  EXPECT_LE(sum_of_ratios / cases, 1.05);
}

// A list that is scheduled by falling length ends after at most 4/3 - 1/(3R) times the best.
TEST(PlanPlacementTest, LargeOnesKeepTheBoundOfLongestFirst) {
  std::mt19937 random(8);
  struct Shape {
    int experts, ranks, slots;
  };
  for (const Shape& shape : {Shape{256, 64, 5}, Shape{256, 8, 40}, Shape{60, 8, 8},
                             Shape{64, 8, 10}, Shape{160, 16, 12}, Shape{128, 16, 8}}) {
    for (const double exponent : {0.0, 0.5, 0.8, 1.0, 1.2, 2.0}) {
      const std::vector<double> loads = Zipf(shape.experts, exponent, random);
      const absl::StatusOr<Placement> plan = PlanPlacement(loads, shape.ranks, shape.slots);
      ASSERT_TRUE(plan.ok()) << plan.status();
      double largest = 0;
      for (int e = 0; e < shape.experts; ++e) {
        largest = std::max(largest, loads[static_cast<size_t>(e)] /
                                        static_cast<double>(plan->ReplicasOf(e).size()));
      }
      const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / shape.ranks;
      EXPECT_LE(Most(plan->LoadsOfRanks(loads)),
                (4.0 / 3 - 1.0 / (3 * shape.ranks)) * std::max(mean, largest))
          << shape.experts << " experts, " << shape.ranks << " ranks, " << shape.slots
          << " slots, n^-" << exponent;
    }
  }
}

TEST(PlanPlacementTest, ALittleRoomBalancesZipf) {
  std::mt19937 random(9);
  // L + L/4 slots; the most popular of 64 experts has 13 % of all, more than a rank's mean.
  const std::vector<double> loads = Zipf(64, 1.1, random);
  const std::vector<double> before = Placement::InOrder(64, 8)->LoadsOfRanks(loads);
  const std::vector<double> after = PlanPlacement(loads, 8, 10)->LoadsOfRanks(loads);
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / 8;
  EXPECT_GE(Most(before), 1.5 * mean);
  EXPECT_LE(Most(after), 1.02 * mean);
}

TEST(PlanPlacementTest, EqualLoadsAndTightFits) {
  // Slots for exactly all experts, and every number of slots above.
  for (int slots = 8; slots <= 60; ++slots) {
    const absl::StatusOr<Placement> plan = PlanPlacement(std::vector<double>(60, 3.0), 8, slots);
    ASSERT_TRUE(plan.ok()) << slots << ": " << plan.status();
    EXPECT_LE(Most(plan->LoadsOfRanks(std::vector<double>(60, 3.0))), 24.0) << slots;
  }
  // Every expert on every rank is possible, and nothing beyond it.
  const Placement all = *PlanPlacement({5, 1, 1}, 4, 7);
  for (int e = 0; e < 3; ++e) EXPECT_EQ(all.ReplicasOf(e).size(), 4);
  // Experts without load get one slot.
  const Placement idle = *PlanPlacement({5, 0, 0}, 4, 3);
  EXPECT_EQ(idle.ReplicasOf(0).size(), 4);
  EXPECT_EQ(idle.ReplicasOf(1).size(), 1);
  EXPECT_TRUE(PlanPlacement(std::vector<double>(4, 0.0), 2, 2).ok());
  EXPECT_TRUE(PlanPlacement({1}, 1, 1).ok());
}

// The last expert finds free slots only where it is already.
TEST(PlanPlacementTest, ReplicasOfOneExpertFindDifferentRanks) {
  std::mt19937 random(10);
  for (int i = 0; i < 300; ++i) {
    const int ranks = std::uniform_int_distribution(1, 6)(random);
    const int slots = std::uniform_int_distribution(1, 5)(random);
    const int experts = std::uniform_int_distribution(1, ranks * slots)(random);
    std::vector<double> loads;
    for (int e = 0; e < experts; ++e) {
      loads.push_back(std::floor(std::exp(std::uniform_real_distribution(-1.0, 8.0)(random))));
    }
    const absl::StatusOr<Placement> plan = PlanPlacement(loads, ranks, slots);
    ASSERT_TRUE(plan.ok()) << plan.status() << ": " << ranks << " ranks, " << slots << " slots, "
                           << absl::StrJoin(loads, " ");
    EXPECT_EQ(*PlanPlacement(loads, ranks, slots), *plan);
  }
}

// Other machines and other versions must plan the same.
TEST(PlanPlacementTest, ThePlanIsTheSameEverywhere) {
  const Placement plan = *PlanPlacement({90, 30, 20, 10, 40}, 3, 3);
  const std::vector<int32_t> wanted = {0, 1, 2, 0, 1, 4, 0, 3, 4};
  EXPECT_EQ(std::vector<int32_t>(plan.slots().begin(), plan.slots().end()), wanted);
}

TEST(PlanPlacementTest, WhatCannotBeIsRefused) {
  const auto refused = [](const std::vector<double>& loads, int ranks, int slots) {
    const absl::StatusOr<Placement> plan = PlanPlacement(loads, ranks, slots);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  EXPECT_THAT(refused({1, 2, 3}, 2, 1), HasSubstr("2 ranks with 1 slots have 2 for 3 experts"));
  EXPECT_THAT(refused({1, -2}, 2, 1), HasSubstr("the load of expert 1 is -2; loads must be"));
  EXPECT_THAT(refused({std::nan(""), 1}, 2, 1), HasSubstr("the load of expert 0 is nan"));
  EXPECT_THAT(refused({}, 2, 1), HasSubstr("num_experts is 0"));
  EXPECT_THAT(refused({1}, 0, 1), HasSubstr("num_ranks is 0"));
  EXPECT_THAT(refused({1}, 1, 0), HasSubstr("slots_per_rank is 0"));
}

}  // namespace
}  // namespace octet
