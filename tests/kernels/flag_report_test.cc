#include "kernels/ep/base/flag_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/base/epoch_numbers.h"
#include "kernels/ep/device/site.h"
#include "kernels/ep/site_info.h"
#include "runtime/device/epoch.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/flag_table.h"

namespace octet {
namespace {

using device::FailureKind;
using device::FailureRecord;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Refused(const NodeFailure& failure, int topk) {
  return absl::StrCat("element ", failure.index, " of ", topk, " is refused");
}

constexpr uint32_t kPlain = 10;
constexpr uint32_t kCounted = 11;
constexpr uint32_t kRows = 12;
constexpr uint32_t kNoTable = 13;
constexpr uint32_t kCheck = 14;
constexpr std::array<SiteInfo, 5> kSites = {
    {{.number = kRows, .phase = "receive", .flag = "row", .table = "rows", .by_rows = true},
     {.number = kPlain, .phase = "send", .flag = "credit", .table = "credits"},
     {.number = kCounted, .phase = "receive", .flag = "count", .table = "counts", .counted = true},
     {.number = kNoTable, .phase = "send", .flag = "share"},
     {.number = kCheck, .refused = Refused}}};

FailureRecord Wait(uint32_t site, uint64_t expected, uint64_t seen = 0) {
  FailureRecord record = {};
  record.kind = FailureKind::kDeadline;
  record.site = site;
  record.peer = 1;
  record.index = 7;
  record.expected = expected;
  record.seen = seen;
  return record;
}

FailureRecord Check(uint32_t site, uint32_t index, uint64_t expected, int64_t seen) {
  FailureRecord record = Wait(site, expected, static_cast<uint64_t>(seen));
  record.kind = FailureKind::kInput;
  record.index = index;
  return record;
}

std::string Described(const FailureRecord& record) {
  return std::string(FlagReport(kSites, 4).Describe(3, record).message());
}

TEST(EpochNumbers, CallsAreCountedFromTheLastReset) {
  EXPECT_EQ(FirstEpoch(0), 1U);
  EXPECT_EQ(CallOf(FirstEpoch(0)), 1U);
  EXPECT_EQ(CallOf(FirstEpoch(5) + 41), 42U);
  EXPECT_GT(FirstEpoch(2), FirstEpoch(1) + 1000);
  EXPECT_EQ(FirstEpoch(uint64_t{1} << kResetBits), FirstEpoch(0)) << "the number wraps around";
  EXPECT_EQ(device::EpochOf(device::PackEpochCount(FirstEpoch((1 << kResetBits) - 1), 3)),
            FirstEpoch((1 << kResetBits) - 1))
      << "the largest epochs fit into a word with a count";
}

TEST(FlagReport, ExpiredWaitsHaveTheSitesWords) {
  const uint64_t epoch = FirstEpoch(2) + 8;  // call 9
  EXPECT_THAT(Described(Wait(kPlain, epoch, epoch - 1)),
              HasSubstr("for rank 1's credit 7: expected epoch 9, seen 8"));
  EXPECT_THAT(Described(Wait(kCounted, device::PackEpochCount(epoch, 0),
                             device::PackEpochCount(epoch - 2, 1234))),
              HasSubstr("rank 3: receive waited"));
  EXPECT_THAT(Described(Wait(kCounted, device::PackEpochCount(epoch, 0),
                             device::PackEpochCount(epoch - 2, 1234))),
              HasSubstr("count 7: expected epoch 9, seen 7"));
}

TEST(FlagReport, RefusedInputNamesTheArgument) {
  const auto range = static_cast<uint32_t>(RoutingCheck::kExpertOutOfRange);
  const auto twice = static_cast<uint32_t>(RoutingCheck::kExpertTwice);
  EXPECT_EQ(Described(Check(range, 9, 64, -5)),
            "rank 3: topk_idx of token 2, k 1 is -5; it must be -1 (dropped) or from 0 to 63");
  EXPECT_EQ(Described(Check(twice, 3, 64, 17)),
            "rank 3: topk_idx of token 0, k 3 is 17, which the token has chosen before; a token's "
            "experts must differ");
  // As in an array of 64-bit ids.
  EXPECT_THAT(Described(Check(twice, 3, 64, 0)), HasSubstr("are these 64-bit ids?"));
  EXPECT_THAT(Described(Check(twice, 2, 64, 0)), Not(HasSubstr("64-bit")));
  EXPECT_EQ(Described(Check(kCheck, 9, 0, 0)), "rank 3: element 9 of 4 is refused");
}

TEST(FlagReport, UnknownSitesAreToldByNumber) {
  EXPECT_THAT(Described(Wait(99, 5, 4)),
              HasSubstr("for rank 1's flag of unknown site 99, index 7: expected epoch 5, seen 4"));
  EXPECT_THAT(Described(Check(99, 2, 5, 6)),
              HasSubstr("check 99 refused element 2 of the input: expected 5, seen 6"));
  EXPECT_EQ(FlagReport(kSites, 4).Describe(0, Wait(99, 5)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(FlagReport, TablesShowHowFarTheFlagsAre) {
  const uint64_t epoch = FirstEpoch(1) + 3;  // call 4
  const FailureRecord waits[] = {Wait(kPlain, epoch), {}, Wait(kPlain, epoch + 1)};
  std::vector<FlagWait> asked;
  const auto words = [&](const SiteInfo& site, const FlagWait& wait) {
    EXPECT_EQ(site.number, kPlain);
    asked.push_back(wait);
    // The peer's slowest flag counts.
    return std::vector<uint64_t>{epoch + 1, epoch + 1 - static_cast<uint64_t>(wait.peer)};
  };
  const std::vector<FlagTable> tables = FlagReport(kSites, 4).Tables(waits, words);
  ASSERT_EQ(tables.size(), 1U);
  EXPECT_EQ(FlagTableText(tables[0]),
            "\ncredits, * behind"
            "\n          expected  0   1   2"
            "\n  rank 0         4  5   4   3*"
            "\n  rank 2         5  5   4*  3*");
  ASSERT_EQ(asked.size(), 6U);
  EXPECT_EQ(asked[4].rank, 2);
  EXPECT_EQ(asked[4].peer, 1);
  EXPECT_EQ(asked[4].epoch, epoch + 1);
}

TEST(FlagReport, TablesOfRowsCountThem) {
  const FailureRecord waits[] = {Wait(kRows, 6), Wait(kCounted, device::PackEpochCount(6, 0)),
                                 Wait(kNoTable, 6), Wait(99, 6)};
  const auto words = [](const SiteInfo& site, const FlagWait& wait) -> std::vector<uint64_t> {
    if (site.counted) return {device::PackEpochCount(wait.peer == 0 ? 5 : 6, 77)};
    return wait.peer == 0 ? std::vector<uint64_t>{6, 5, 7} : std::vector<uint64_t>{6};
  };
  const std::vector<FlagTable> tables = FlagReport(kSites, 4).Tables(waits, words);
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[0].title, "counts");
  EXPECT_EQ(tables[0].rows[0].expected, "6");
  EXPECT_EQ(tables[0].rows[0].peers[0].seen, "5");
  EXPECT_TRUE(tables[0].rows[0].peers[0].behind);
  EXPECT_FALSE(tables[0].rows[0].peers[1].behind);
  EXPECT_EQ(tables[1].title, "rows");
  EXPECT_EQ(tables[1].rows[0].expected, "");
  EXPECT_EQ(tables[1].rows[0].peers[0].seen, "2/3");
  EXPECT_TRUE(tables[1].rows[0].peers[0].behind);
  EXPECT_EQ(tables[1].rows[0].peers[1].seen, "1/1");
  EXPECT_FALSE(tables[1].rows[0].peers[1].behind);
}

}  // namespace
}  // namespace octet
