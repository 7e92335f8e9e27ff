// Plans of moves: the slots that experts go to when a placement changes, and the ranks that copy.
#include "kernels/placement/move_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "octet/placement.h"
#include "tests/kernels/placement/random_placement.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using placement::ExpertCopy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Placement Of(int num_experts, int num_ranks, const std::vector<int32_t>& slots) {
  return *Placement::Create(num_experts, num_ranks, slots);
}

TEST(FitIntoTest, WhatStaysKeepsItsSlotAndWhatComesTakesFreeOnes) {
  const Placement current = Of(4, 2, {0, -1, 1, 2, 3, -1});
  const absl::StatusOr<Placement> next = FitInto(current, Of(4, 2, {3, 1, 0, 2}));
  ASSERT_OK(next.status());
  EXPECT_THAT(next->slots(), ElementsAre(-1, 3, 1, 2, -1, 0));
}

TEST(FitIntoTest, SlotsOfWhatLeavesAreFreeLater) {
  const Placement current = Of(4, 2, {0, 1, 2, 3, -1, 0});
  EXPECT_THAT(FitInto(current, Of(4, 2, {0, 1, 3, 2, -1, -1})).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 0 would get 1 experts that it has not, the first of them 3, "
                                 "and 0 of its 3 slots are free")));
  const absl::StatusOr<Placement> less = FitInto(current, Of(4, 2, {0, 1, 2, 3}));
  ASSERT_OK(less.status());
  EXPECT_THAT(less->slots(), ElementsAre(0, 1, -1, 3, 2, -1));
}

TEST(FitIntoTest, RefusesOtherNumbers) {
  const Placement current = *Placement::InOrder(6, 3);
  EXPECT_THAT(
      FitInto(current, *Placement::InOrder(6, 2)).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("placement is of 6 experts on 2 ranks; the layer has 6 experts and "
                         "3 ranks")));
  EXPECT_THAT(FitInto(current, *Placement::InOrder(7, 3)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is of 7 experts")));
}

TEST(PlanCopiesTest, HoldersShareTheCopies) {
  const Placement current = Of(2, 3, {0, 1, 0, 1, -1, -1});
  const Placement next = Of(2, 3, {0, 1, 0, 1, 0, 1});
  const std::vector<std::vector<ExpertCopy>> copies = PlanCopies(current, next);
  ASSERT_EQ(copies.size(), 3U);
  ASSERT_EQ(copies[0].size(), 1U);
  ASSERT_EQ(copies[1].size(), 1U);
  EXPECT_THAT(copies[2], IsEmpty());
  EXPECT_EQ(copies[0][0].from_slot, 0);
  EXPECT_EQ(copies[0][0].to_rank, 2);
  EXPECT_EQ(copies[0][0].to_slot, 0);
  EXPECT_EQ(copies[1][0].from_slot, 1);
  EXPECT_EQ(copies[1][0].to_slot, 1);
}

// Every slot of the next placement has its expert after the copies, none of which writes into a slot
// that is in use.
TEST(PlanCopiesTest, FillsExactlyWhatIsNew) {
  std::mt19937_64 rng(4);
  int fitted = 0;
  for (int round = 0; round < 300; ++round) {
    const Placement current = RandomPlacement(rng, 9, 4, 5, 0.3);
    const absl::StatusOr<Placement> next = FitInto(current, RandomPlacement(rng, 9, 4, 4, 0.2));
    if (!next.ok()) continue;
    ++fitted;
    std::vector<int32_t> slots(current.slots().begin(), current.slots().end());
    const std::vector<std::vector<ExpertCopy>> copies = PlanCopies(current, *next);
    for (size_t rank = 0; rank < copies.size(); ++rank) {
      for (const ExpertCopy& copy : copies[rank]) {
        const size_t to = static_cast<size_t>(copy.to_rank) * 5 + static_cast<size_t>(copy.to_slot);
        ASSERT_EQ(slots[to], Placement::kFreeSlot);
        slots[to] = current.slots()[rank * 5 + static_cast<size_t>(copy.from_slot)];
      }
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      const int32_t expert = next->slots()[i];
      if (expert != Placement::kFreeSlot) EXPECT_EQ(slots[i], expert);
    }
  }
  EXPECT_GT(fitted, 20);
}

}  // namespace
}  // namespace octet
