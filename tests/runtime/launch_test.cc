#include "runtime/gpu/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/status/status.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CheckResident, TheLastBlockThatFits) {
  EXPECT_OK(CheckResident("k", {.blocks = 264, .threads = 256}, 2, 132));
  EXPECT_THAT(
      CheckResident("dispatch", {.blocks = 265, .threads = 256, .shared_bytes = 99}, 2, 132),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("dispatch: "), HasSubstr("265 blocks of 256 threads"),
                     HasSubstr("99 bytes"), HasSubstr("2 per compute unit"),
                     HasSubstr("132 compute units"), HasSubstr("264"))));
}

TEST(CheckResident, ABlockThatNeverFits) {
  EXPECT_EQ(CheckResident("k", {.blocks = 1, .threads = 1024}, 0, 132).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CheckResident, EmptyShapes) {
  EXPECT_EQ(CheckResident("k", {.blocks = 0, .threads = 64}, 2, 4).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckResident("k", {.blocks = 1, .threads = 0}, 2, 4).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CheckResident, LargeProducts) {
  EXPECT_OK(CheckResident("k", {.blocks = std::numeric_limits<int>::max(), .threads = 64}, 1 << 20,
                          1 << 20));
}

}  // namespace
}  // namespace octet
