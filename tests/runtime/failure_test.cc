#include "runtime/failure/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "octet/node_failure.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/failure_log.h"
#include "runtime/failure/flag_table.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::EndsWith;

using device::FailureKind;
using device::FailureRecord;

FailureRecord Record(FailureKind kind, int32_t peer, uint32_t index = 0, uint64_t expected = 0,
                     uint64_t seen = 0) {
  FailureRecord record = {};
  record.kind = kind;
  record.peer = peer;
  record.index = index;
  record.expected = expected;
  record.seen = seen;
  return record;
}
FailureRecord Waited(int peer) { return Record(FailureKind::kDeadline, peer); }

NodeFailure TokenFlagOfRank5() {
  return {.kind = NodeFailure::Kind::kWait,
          .rank = 3,
          .peer = 5,
          .index = 17,
          .expected = 42,
          .seen = 41,
          .waited = absl::Seconds(10),
          .phase = "dispatch-receive",
          .flag = "token flag"};
}

TEST(DeadlineStatus, Sentence) {
  EXPECT_THAT(DeadlineStatus(TokenFlagOfRank5()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "rank 3: dispatch-receive waited 10.0 s for rank 5's token flag 17: "
                       "expected epoch 42, seen 41"));
}

TEST(DeadlineStatus, WithoutAPeer) {
  NodeFailure failure = TokenFlagOfRank5();
  failure.peer = -1;
  failure.waited = absl::Milliseconds(250);
  EXPECT_EQ(DeadlineStatus(failure).message(),
            "rank 3: dispatch-receive waited 250 ms for token flag 17: expected epoch 42, "
            "seen 41");
}

TEST(FailureOf, ReturnsWhatTheStatusWasMadeOf) {
  NodeFailure made = TokenFlagOfRank5();
  made.flag = "flag; with the payload's separator: and more";
  made.object = R"(name; flag: with \s and \\)";
  const NodeFailure failure = FailureOf(WithRank(0, DeadlineStatus(made))).value_or(NodeFailure{});
  EXPECT_EQ(failure.kind, NodeFailure::Kind::kWait);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.peer, 5);
  EXPECT_EQ(failure.index, 17U);
  EXPECT_EQ(failure.expected, 42U);
  EXPECT_EQ(failure.seen, 41U);
  EXPECT_EQ(failure.waited, absl::Seconds(10));
  EXPECT_EQ(failure.phase, "dispatch-receive");
  EXPECT_EQ(failure.flag, made.flag);
  EXPECT_EQ(failure.object, made.object);
}

// Status::ToString prints it behind the message.
TEST(FailureOf, ReadsLikeALineOfAReport) {
  NodeFailure made = TokenFlagOfRank5();
  made.object = "layer 7";
  EXPECT_THAT(
      DeadlineStatus(made).ToString(),
      EndsWith("[octet.dev/node_failure='kind: wait; rank: 3; peer: 5; index: 17; expected: "
               "42; seen: 41; waited: 10s; phase: dispatch-receive; object: layer 7; flag: "
               "token flag']"));
  EXPECT_EQ(WithRank(2, absl::InternalError("x")).ToString(),
            "INTERNAL: rank 2: x [octet.dev/node_failure='rank: 2']");
  EXPECT_EQ(WithLostNode(absl::InternalError("x")).ToString(),
            "INTERNAL: x [octet.dev/lost_node='a node has died or been stopped']");
}

TEST(WithObject, NamesTheObjectAfterTheRank) {
  const absl::Status named = WithObject(DeadlineStatus(TokenFlagOfRank5()), "layer 7");
  EXPECT_THAT(named, StatusIs(absl::StatusCode::kDeadlineExceeded,
                              "rank 3: 'layer 7': dispatch-receive waited 10.0 s for rank 5's "
                              "token flag 17: expected epoch 42, seen 41"));
  EXPECT_EQ(FailureOf(named).value_or(NodeFailure{}).object, "layer 7");
  EXPECT_EQ(FailureOf(named).value_or(NodeFailure{}).peer, 5);
  EXPECT_EQ(WithObject(DeadlineStatus(TokenFlagOfRank5()), ""), DeadlineStatus(TokenFlagOfRank5()));
  EXPECT_EQ(WithObject(absl::InternalError("x"), "layer 7"), absl::InternalError("x"));
}

TEST(FailureOf, AnErrorHasARankAndOtherStatusesHaveNothing) {
  const NodeFailure failure =
      FailureOf(WithRank(2, absl::InternalError("x"))).value_or(NodeFailure{});
  EXPECT_EQ(failure.kind, NodeFailure::Kind::kError);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_FALSE(FailureOf(absl::InternalError("rank 2: x")).has_value());
  EXPECT_FALSE(FailureOf(absl::OkStatus()).has_value());
}

TEST(RecordedFailure, IsAWaitOrRefusedInput) {
  FailureRecord record = Record(FailureKind::kInput, -1, 17, 42, 41);
  NodeFailure failure = RecordedFailure(3, record, "dispatch-send", "expert id");
  EXPECT_EQ(failure.kind, NodeFailure::Kind::kInput);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.peer, -1);
  EXPECT_EQ(failure.index, 17U);
  EXPECT_EQ(failure.expected, 42U);
  EXPECT_EQ(failure.seen, 41U);
  EXPECT_EQ(failure.flag, "expert id");
  record.kind = FailureKind::kReleased;
  record.waited_ticks = DeviceClockHz();
  failure = RecordedFailure(3, record, "dispatch-send", "expert id");
  EXPECT_EQ(failure.kind, NodeFailure::Kind::kWait);
  EXPECT_EQ(failure.waited, absl::Seconds(1));
}

TEST(DeviceTicks, AreSecondsOfTheGpuClock) {
  EXPECT_EQ(DeviceTicks(DeviceClockHz()), absl::Seconds(1));
  EXPECT_EQ(DeviceTicks(DeviceClockHz() / 1000), absl::Milliseconds(1));
  EXPECT_EQ(DeviceTicksOf(absl::Seconds(3)), 3 * DeviceClockHz());
  EXPECT_EQ(DeviceTicksOf(absl::ZeroDuration()), 0U);
  EXPECT_EQ(DeviceTicksOf(absl::Nanoseconds(1) / 4), 1U);
  EXPECT_GT(DeviceTicksOf(absl::InfiniteDuration()), uint64_t{1} << 61);
}

TEST(WithRank, NamesTheRankOnce) {
  const absl::Status status = WithRank(3, absl::InternalError("x"));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "rank 3: x"));
  EXPECT_EQ(WithRank(4, status).message(), "rank 3: x");
  EXPECT_EQ(WithRank(11, WithRank(11, absl::InternalError("x"))).message(), "rank 11: x");
  EXPECT_EQ(WithRank(1, absl::AbortedError("rank 2 has left Run")).message(),
            "rank 1: rank 2 has left Run");
  // The words of a body are not read.
  EXPECT_EQ(WithRank(1, absl::InternalError("rank 3: x")).message(), "rank 1: rank 3: x");
  EXPECT_OK(WithRank(1, absl::OkStatus()));
}

TEST(WithRank, KeepsPayloads) {
  absl::Status status = absl::InternalError("x");
  status.SetPayload("octet/test", absl::Cord("payload"));
  EXPECT_EQ(WithRank(0, status).GetPayload("octet/test"), absl::Cord("payload"));
}

TEST(FlagTable, IsAligned) {
  FlagTable table = {.title = "flags of no kind", .rows = {}};
  table.rows.push_back({.rank = 0, .expected = "7", .peers = {{"7", false}, {"6", true}}});
  table.rows.push_back({.rank = 11, .expected = "1000", .peers = {{"0", true}, {"1000", false}}});
  EXPECT_EQ(FlagTableText(table),
            "\nflags of no kind, * behind"
            "\n           expected  0      1"
            "\n  rank 0          7  7      6*"
            "\n  rank 11      1000  0*  1000");
}

TEST(FailureLog, IsOkWhenEmpty) {
  FailureLog log;
  EXPECT_TRUE(log.empty());
  EXPECT_OK(log.Cause());
  log.AddStatus(0, absl::InternalError("x"), false);
  EXPECT_FALSE(log.empty());
  log.Clear();
  EXPECT_OK(log.Cause());
}

TEST(FailureLog, RefusedInputComesFirst) {
  FailureLog log;
  log.AddStatus(0, absl::InternalError("body"), false);
  log.AddRecord(1, Waited(2), absl::DeadlineExceededError("waited"));
  log.AddRecord(3, Record(FailureKind::kInput, -1), absl::InvalidArgumentError("refused"));
  EXPECT_THAT(log.Cause(), StatusIs(absl::StatusCode::kInvalidArgument, "rank 3: refused"));
}

// A body that failed before any GPU did made the others' waits expire; one that failed afterwards
// reports the consequence in its own words.
TEST(FailureLog, ABodyThatFailedFirstIsTheCause) {
  FailureLog log;
  log.AddStatus(2, absl::InternalError("body"), false);
  log.AddRecord(1, Waited(2), absl::DeadlineExceededError("waited"));
  EXPECT_EQ(log.Cause().message(), "rank 2: body");
}

TEST(FailureLog, AWaitThatExpiredFirstIsTheCause) {
  FailureLog log;
  log.AddStatus(1, absl::InternalError("my model failed"), true);
  log.AddRecord(1, Waited(2), absl::DeadlineExceededError("waited"));
  EXPECT_EQ(log.Cause().message(), "rank 1: waited");
}

// Rank 0 waited for 1, 1 for 2, and 2 for nobody.
TEST(FailureLog, TheWaitForASilentRankIsTheCause) {
  FailureLog log;
  log.AddRecord(0, Waited(1), absl::DeadlineExceededError("for 1"));
  log.AddRecord(1, Waited(2), absl::DeadlineExceededError("for 2"));
  EXPECT_EQ(log.Cause().message(), "rank 1: for 2");
}

TEST(FailureLog, ACircleOfWaitsIsReportedFromItsLowestRank) {
  FailureLog log;
  log.AddRecord(0, Waited(1), absl::DeadlineExceededError("for 1"));
  log.AddRecord(1, Waited(0), absl::DeadlineExceededError("for 0"));
  EXPECT_EQ(log.Cause().message(), "rank 0: for 1");
}

TEST(FailureLog, ReleasedRanksComeLast) {
  FailureLog log;
  log.AddStatus(0, absl::CancelledError("released"), false);
  EXPECT_EQ(log.Cause().message(), "rank 0: released");
  log.AddStatus(1, absl::AbortedError("rank 2 has left Run"), false);
  EXPECT_EQ(log.Cause().message(), "rank 1: rank 2 has left Run");
  log.AddStatus(2, absl::InternalError("late"), true);
  EXPECT_EQ(log.Cause().message(), "rank 2: late");
}

TEST(FailureLog, WhereRanksSayTheSameTheLowestSpeaks) {
  FailureLog log;
  log.AddStatus(5, absl::InvalidArgumentError("bad config"), false);
  log.AddStatus(0, absl::InvalidArgumentError("bad luck"), false);
  log.AddStatus(2, absl::InvalidArgumentError("bad config"), false);
  EXPECT_EQ(log.Cause().message(), "rank 2: bad config");
}

}  // namespace
}  // namespace octet
