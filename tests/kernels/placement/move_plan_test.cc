// Plans of moves: the slots that experts go to when a placement changes, and the ranks that copy.
#include "kernels/placement/move_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "octet/placement.h"
#include "tests/kernels/placement/random_placement.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using placement::ExpertCopy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

// Follows `steps`, each of which must be one that Prepare takes as it is.
void ExpectSteps(const Placement& current, const Placement& wanted,
                 const std::vector<Placement>& steps) {
  Placement at = current;
  for (const Placement& step : steps) {
    const absl::StatusOr<Placement> next = FitInto(at, step);
    ASSERT_OK(next.status());
    ASSERT_EQ(next->slots(), step.slots());
    EXPECT_NE(step, at);
    at = step;
  }
  for (int rank = 0; rank < wanted.num_ranks(); ++rank) {
    for (int expert = 0; expert < wanted.num_experts(); ++expert) {
      EXPECT_EQ(at.ReplicaOn(rank, expert) >= 0, wanted.ReplicaOn(rank, expert) >= 0)
          << "rank " << rank << ", expert " << expert;
    }
  }
}

TEST(PlanMovesTest, TakesOneStepWhereThereIsRoomAndNoneForWhatIsThere) {
  const Placement current = Of(4, 2, {0, 1, -1, 2, 3, -1});
  const Placement wanted = Of(4, 2, {0, 3, 2, 1});
  const absl::StatusOr<std::vector<Placement>> steps = PlanMoves(current, wanted);
  ASSERT_OK(steps.status());
  // Both swap an expert through the free slots, and then the other one.
  EXPECT_THAT(*steps, SizeIs(1));
  ExpectSteps(current, wanted, *steps);
  EXPECT_THAT(*PlanMoves(current, Of(4, 2, {1, 0, 3, 2})), IsEmpty());
}

TEST(PlanMovesTest, FullRanksSwapThroughAThirdOne) {
  const Placement current = Of(5, 3, {0, 1, 2, 3, 4, -1});
  const Placement wanted = Of(5, 3, {0, 2, 1, 3, 4, -1});
  const absl::StatusOr<std::vector<Placement>> steps = PlanMoves(current, wanted);
  ASSERT_OK(steps.status());
  EXPECT_THAT(*steps, SizeIs(3));  // 1 or 2 aside; the other one comes; the first one comes
  ExpectSteps(current, wanted, *steps);
}

TEST(PlanMovesTest, AReplicaMakesRoomWhereNoSlotIsFree) {
  const Placement current = Of(5, 3, {0, 1, 2, 3, 4, 0});
  const Placement wanted = Of(5, 3, {0, 2, 1, 3, 4, 0});
  const absl::StatusOr<std::vector<Placement>> steps = PlanMoves(current, wanted);
  ASSERT_OK(steps.status());
  ExpectSteps(current, wanted, *steps);
}

TEST(PlanMovesTest, RefusesWhatCannotMove) {
  EXPECT_THAT(
      PlanMoves(*Placement::InOrder(4, 2), Of(4, 2, {0, 2, 1, 3})).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no slot of the 4 is free")));
  EXPECT_THAT(PlanMoves(*Placement::InOrder(4, 2), Of(4, 2, {0, 1, 2, 3, -1, -1})).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 0 would get 3 experts, and has 2 slots")));
  EXPECT_FALSE(PlanMoves(*Placement::InOrder(4, 2), *Placement::InOrder(5, 2)).ok());
}

TEST(PlanMovesTest, ArrivesFromAnywhere) {
  std::mt19937_64 rng(8);
  size_t most = 0;
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    // There are 20 slots; none or some of them are free.
    const Placement current = RandomPlacement(rng, 9 + round % 11, 4, 5, 0.05 * (round % 7));
    const Placement wanted = RandomPlacement(rng, 9 + round % 11, 4, 5, 0.05 * (round % 5));
    const absl::StatusOr<std::vector<Placement>> steps = PlanMoves(current, wanted);
    const bool movable =
        absl::c_linear_search(current.slots(), Placement::kFreeSlot) || current.num_experts() < 20;
    ASSERT_TRUE(steps.ok() || !movable) << steps.status();
    if (!steps.ok()) continue;
    ExpectSteps(current, wanted, *steps);
    if (HasFatalFailure()) return;
    most = std::max(most, steps->size());
  }
  EXPECT_LE(most, 20U);
  EXPECT_GE(most, 3U);
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

// Every slot of the next placement has its expert after the copies, none of which writes into a
// slot that is in use.
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
