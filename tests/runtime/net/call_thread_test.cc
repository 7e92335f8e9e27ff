#include "runtime/net/call_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

bool Forever() { return true; }

TEST(CallThreadTest, ReturnsWhatCallsReturn) {
  CallThread calls;
  for (int i = 0; i < 100; ++i) {
    EXPECT_OK(calls.Make([] { return absl::OkStatus(); }, Forever));
    EXPECT_THAT(calls.Make([] { return absl::DataLossError("on purpose"); }, Forever),
                StatusIs(absl::StatusCode::kDataLoss, "on purpose"));
  }
}

TEST(CallThreadTest, MakesCallsOnOneOtherThread) {
  CallThread calls;
  const auto id = [&calls] {
    auto found = std::make_shared<std::thread::id>();
    EXPECT_OK(calls.Make(
        [found] {
          *found = std::this_thread::get_id();
          return absl::OkStatus();
        },
        Forever));
    return *found;
  };
  const std::thread::id first = id();
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_EQ(id(), first);
  absl::SleepFor(absl::Milliseconds(5));  // it sleeps
  EXPECT_EQ(id(), first);
  absl::SleepFor(absl::Milliseconds(5));
  calls.Wake();
  EXPECT_EQ(id(), first);
}

TEST(CallThreadTest, LeavesACallBehindThatDoesNotReturn) {
  CallThread calls;
  calls.Wake();  // there is no thread yet
  auto begun = std::make_shared<std::atomic<bool>>(false);
  auto released = std::make_shared<std::atomic<bool>>(false);
  auto ended = std::make_shared<std::atomic<bool>>(false);
  EXPECT_THAT(calls.Make(
                  [begun, released, ended] {
                    *begun = true;
                    while (!*released) absl::SleepFor(absl::Milliseconds(1));
                    *ended = true;
                    return absl::OkStatus();
                  },
                  [begun] { return !*begun; }),
              StatusIs(absl::StatusCode::kCancelled, "the call has not ended"));
  EXPECT_FALSE(*ended);
  EXPECT_OK(calls.Make([] { return absl::OkStatus(); }, Forever));
  *released = true;
  while (!*ended) absl::SleepFor(absl::Milliseconds(1));
}

}  // namespace
}  // namespace octet
