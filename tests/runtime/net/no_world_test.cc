// A build without MPI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "octet/world.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

TEST(NoWorldTest, SaysHowToGetOne) {
  EXPECT_THAT(World::Create().status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       ::testing::AllOf(HasSubstr("without MPI"), HasSubstr("-DOCTET_MPI=ON"))));
}

}  // namespace
}  // namespace octet
