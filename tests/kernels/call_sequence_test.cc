#include "kernels/ep/base/call_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

void Refused(const absl::Status& status, absl::string_view words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

// A dispatch and its combine, both in one launch.
void Step(CallSequence& sequence) {
  ASSERT_TRUE(sequence.CheckDispatch(Phases::kBoth).ok());
  sequence.RecordDispatch(Phases::kBoth);
  ASSERT_TRUE(sequence.CheckCombine(sequence.calls(), Phases::kBoth).ok());
  sequence.RecordCombine(sequence.calls(), Phases::kBoth);
}

TEST(CallSequence, StepsFollowOneAnother) {
  CallSequence sequence;
  for (uint64_t call = 1; call <= 3; ++call) {
    Step(sequence);
    EXPECT_EQ(sequence.calls(), call);
    EXPECT_TRUE(sequence.CheckComplete().ok());
  }
}

TEST(CallSequence, WhatIsSentIsReceivedBeforeTheNextSend) {
  CallSequence sequence;
  sequence.RecordDispatch(Phases::kSend);
  Refused(sequence.CheckComplete(), "the dispatch of call 1");
  Refused(sequence.CheckDispatch(Phases::kSend), "the dispatch of call 1");
  Refused(
      sequence.CheckDispatch(Phases::kBoth),
      "the dispatch of call 1 of this rank has been sent but not received; call DispatchReceive "
      "first. At most 1 dispatch may be outstanding");
  Refused(sequence.CheckCombine(1, Phases::kSend), "the dispatch of call 1");
  ASSERT_TRUE(sequence.CheckDispatchReceive(1).ok());
  sequence.RecordDispatchReceive();
  Refused(sequence.CheckDispatchReceive(1), "nothing has been sent");

  sequence.RecordCombine(1, Phases::kSend);
  Refused(sequence.CheckComplete(), "the combine of call 1");
  Refused(sequence.CheckDispatch(Phases::kSend), "the combine of call 1");
  ASSERT_TRUE(sequence.CheckCombine(1, Phases::kReceive).ok());
  sequence.RecordCombine(1, Phases::kReceive);
  Refused(sequence.CheckCombine(1, Phases::kReceive), "nothing has been sent");
  EXPECT_TRUE(sequence.CheckDispatch(Phases::kBoth).ok());
}

TEST(CallSequence, TwoBatchesAreReceivedInTheOrderOfSending) {
  CallSequence sequence(2);
  sequence.RecordDispatch(Phases::kSend);
  ASSERT_TRUE(sequence.CheckDispatch(Phases::kSend).ok());
  Refused(sequence.CheckDispatch(Phases::kBoth), "is to be received before");
  sequence.RecordDispatch(Phases::kSend);
  Refused(sequence.CheckDispatch(Phases::kSend), "At most 2 dispatches may be outstanding");
  Refused(sequence.CheckDispatchReceive(2), "call 1 of this rank has been sent before");
  EXPECT_TRUE(sequence.CheckDispatchReceive(1).ok());
}

TEST(CallSequence, AHandleBeforeTheLastDispatchIsRefusedWithTheReason) {
  CallSequence sequence(1);
  Step(sequence);
  Step(sequence);
  Refused(sequence.CheckRecent(1),
          "whose last is 2; one may be outstanding: combine it before the next dispatch");
}

TEST(CallSequence, HandlesAreOfTheLastBatchesAndNotVoid) {
  CallSequence sequence(2);
  Refused(sequence.CheckRecent(0), "dispatch 0 of this rank, whose last is 0");
  for (int i = 0; i < 3; ++i) Step(sequence);
  Refused(sequence.CheckRecent(1),
          "dispatch 1 of this rank, whose last is 3; only its last 2 can be combined");
  EXPECT_TRUE(sequence.CheckRecent(2).ok());
  EXPECT_TRUE(sequence.CheckRecent(3).ok());
  Refused(sequence.CheckRecent(4), "dispatch 4");
  sequence.RecordDispatch(Phases::kSend);
  sequence.Void();
  EXPECT_TRUE(sequence.CheckComplete().ok());
  Refused(sequence.CheckRecent(4), "void");
  Step(sequence);
  EXPECT_TRUE(sequence.CheckRecent(5).ok());
}

// Whatever is allowed in random order, never more than `batches` dispatches are outstanding, and
// they are received in the order of sending.
TEST(CallSequence, RandomCallsKeepTheOrder) {
  for (const int batches : {1, 2, 3}) {
    SCOPED_TRACE(batches);
    std::mt19937_64 rng(static_cast<uint64_t>(batches));
    CallSequence sequence(batches);
    std::deque<uint64_t> sent;
    size_t most = 0;
    for (int i = 0; i < 10'000; ++i) {
      if (rng() % 2 == 0) {
        if (!sequence.CheckDispatch(Phases::kSend).ok()) continue;
        sequence.RecordDispatch(Phases::kSend);
        sent.push_back(sequence.calls());
      } else {
        const uint64_t call = 1 + rng() % (sequence.calls() + 1);
        const bool next = !sent.empty() && sent.front() == call;
        ASSERT_EQ(sequence.CheckDispatchReceive(call).ok(), next) << call;
        if (!next) continue;
        sequence.RecordDispatchReceive();
        sent.pop_front();
      }
      most = std::max(most, sent.size());
      ASSERT_EQ(sequence.CheckComplete().ok(), sent.empty());
    }
    EXPECT_EQ(most, static_cast<size_t>(batches));
  }
}

}  // namespace
}  // namespace octet
