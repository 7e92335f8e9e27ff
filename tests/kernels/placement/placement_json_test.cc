#include "octet/placement_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/placement.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(absl::string_view json, const std::string& sentence) {
  const absl::StatusOr<Placement> placement = ParsePlacement(json, "p.json");
  EXPECT_EQ(placement.status().code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_THAT(std::string(placement.status().message()), HasSubstr(sentence));
}

TEST(PlacementJsonTest, WhatIsWrittenIsReadBack) {
  const Placement placement = *Placement::Create(3, 2, {0, 2, -1, 1, 2, 0});
  const std::string json = PlacementToJson(placement);
  EXPECT_EQ(json, R"({
  "schema": 1,
  "experts": 3,
  "ranks": [
    [0, 2, -1],
    [1, 2, 0]
  ]
}
)");
  const absl::StatusOr<Placement> read = ParsePlacement(json, "p.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, placement);
}

TEST(PlacementJsonTest, ErrorsNameTheMember) {
  ExpectRefused("{", "p.json is no JSON");
  ExpectRefused("[]", "p.json is no JSON object");
  ExpectRefused("{}", "p.json has no 'schema'");
  ExpectRefused(R"({"schema": 2, "experts": 1, "ranks": [[0]]})", "'schema' is 2; it must be 1");
  ExpectRefused(R"({"schema": 1, "ranks": [[0]]})", "p.json has no 'experts'");
  ExpectRefused(R"({"schema": 1, "experts": "1", "ranks": [[0]]})",
                "'experts' is \"1\"; it must be a whole number");
  ExpectRefused(R"({"schema": 1, "experts": 18446744073709551615, "ranks": [[0]]})",
                "it must be a whole number");
  ExpectRefused(R"({"schema": 1, "experts": 1})", "'ranks' must be an array");
  ExpectRefused(R"({"schema": 1, "experts": 1, "ranks": []})", "'ranks' must be an array");
  ExpectRefused(R"({"schema": 1, "experts": 1, "ranks": [0]})",
                "rank 0 is 0; it must be an array of the experts in its slots");
  ExpectRefused(R"({"schema": 1, "experts": 1, "ranks": [[0.5]]})",
                "rank 0 is [0.5]; it must be an array of whole numbers");
  ExpectRefused(R"({"schema": 1, "experts": 2, "ranks": [[0], [1, -1]]})",
                "rank 1 has 2 slots, and rank 0 has 1");
  ExpectRefused(R"({"schema": 1, "experts": 1, "ranks": [[]]})", "p.json: a placement has 0 slots");
  ExpectRefused(R"({"schema": 1, "experts": 2, "ranks": [[0], [0]]})",
                "p.json: expert 1 has no slot");
  ExpectRefused(R"({"schema": 1, "experts": 1, "slots": 1, "ranks": [[0]]})",
                "unknown member \"slots\"");
}

}  // namespace
}  // namespace octet
