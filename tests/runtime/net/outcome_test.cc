// What the nodes of a World make of what all of them have said.
#include "runtime/net/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "octet/node_failure.h"
#include "runtime/failure/failure.h"
#include "runtime/net/pack.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

absl::Status WaitFor(uint32_t node) {
  return WithFailure({.kind = NodeFailure::Kind::kWait,
                      .rank = 1,
                      .index = node,
                      .phase = std::string(kExchangePhase)},
                     absl::DeadlineExceededError(absl::StrCat("waited for node ", node)));
}

absl::Status Mismatch(uint32_t node) {
  return WithFailure({.kind = NodeFailure::Kind::kInput,
                      .rank = 1,
                      .index = node,
                      .phase = std::string(kExchangePhase)},
                     absl::InvalidArgumentError(absl::StrCat("another exchange of node ", node)));
}

TEST(PackTest, ReturnsTheSameFields) {
  const std::vector<std::string> fields = {"", "a:b", std::string("\0\n", 2), "17:", ""};
  EXPECT_EQ(Unpack(Pack(fields)), fields);
  EXPECT_EQ(Unpack(""), std::vector<std::string>());
}

TEST(PackTest, RefusesWhatIsCutOffOrNoNumber) {
  for (const char* text : {"3:ab", "x:ab", "12", ":", "-1:a"}) {
    EXPECT_EQ(Unpack(text), std::nullopt) << text;
  }
}

TEST(PackTest, StatusKeepsItsPayload) {
  const absl::Status status = WaitFor(7);
  EXPECT_EQ(UnpackStatus(PackStatus(status)), status);
  EXPECT_EQ(UnpackStatus(PackStatus(absl::OkStatus())), absl::OkStatus());
  EXPECT_EQ(UnpackStatus("garbage").code(), absl::StatusCode::kInternal);
}

TEST(CauseTest, AnErrorOfANodesOwnComesFirst) {
  EXPECT_EQ(CauseOf({absl::OkStatus(), absl::OkStatus()}), absl::OkStatus());
  const absl::Status released = absl::CancelledError("released");
  const absl::Status own = absl::DataLossError("rank 1: lost");
  EXPECT_THAT(CauseOf({released, WaitFor(2), own, own}),
              StatusIs(absl::StatusCode::kDataLoss, "node 2: rank 1: lost"));
  EXPECT_THAT(CauseOf({absl::OkStatus(), released}),
              StatusIs(absl::StatusCode::kCancelled, "node 1: released"));
  EXPECT_THAT(CauseOf({released, absl::AbortedError("a connection is gone")}),
              StatusIs(absl::StatusCode::kAborted, "node 1: a connection is gone"));
}

TEST(CauseTest, AWaitForASilentNodeComesBeforeOneForANodeThatWaits) {
  const absl::Status cause = CauseOf({WaitFor(1), WaitFor(2), absl::OkStatus()});
  EXPECT_THAT(cause,
              StatusIs(absl::StatusCode::kDeadlineExceeded, "node 1: rank 1: waited for node 2"));
  EXPECT_EQ(FailureOf(cause).value_or(NodeFailure()).index, 2U);
  EXPECT_THAT(CauseOf({WaitFor(1), WaitFor(0)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "node 0: rank 1: waited for node 1"));
}

// Whoever is aborted, because it has failed or waits in vain, can send bytes of no meaning.
TEST(CauseTest, AMismatchMayBeTheEffectOfAFailureElsewhere) {
  const absl::Status own = absl::DataLossError("rank 1: lost");
  EXPECT_THAT(CauseOf({Mismatch(1), own}),
              StatusIs(absl::StatusCode::kDataLoss, "node 1: rank 1: lost"));
  EXPECT_THAT(CauseOf({Mismatch(1), WaitFor(0)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "node 1: rank 1: waited for node 0"));
  EXPECT_THAT(
      CauseOf({absl::CancelledError("released"), Mismatch(0), Mismatch(1),
               absl::AbortedError("a connection is gone")}),
      StatusIs(absl::StatusCode::kInvalidArgument, "node 1: rank 1: another exchange of node 0"));
}

TEST(CheckSameTest, NamesBothValues) {
  EXPECT_OK(CheckSame("size", {"1", "1"}));
  EXPECT_THAT(CheckSame("size", {"1", "1", "2"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the nodes differ in size: 1 on node 0, 2 on node 2"));
}

TEST(CheckSameTest, NamesTheMembersThatDiffer) {
  EXPECT_THAT(
      CheckSame("the options", {"experts 24, topk 4, bf16", "experts 24, topk 8, fp16"}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "the nodes differ in the options: topk 4 on node 0, topk 8 on node 1; bf16 on "
               "node 0, fp16 on node 1"));
  EXPECT_THAT(CheckSame("the command line", {"run, -n2", "run, -n2", "run, --hidden=64, -n2, -n2"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the nodes differ in the command line: --hidden=64 only on node 2; -n2 only "
                       "on node 2"));
  EXPECT_THAT(CheckSame("it", {"a, b", ""}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the nodes differ in it: a, b on node 0,  on node 1"));
}

}  // namespace
}  // namespace octet
