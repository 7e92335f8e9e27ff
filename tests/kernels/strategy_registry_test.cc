#include "kernels/ep/strategy_registry.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/device/site.h"
#include "kernels/ep/site_info.h"
#include "octet/ep_config.h"

namespace octet {
namespace {

TEST(StrategyRegistry, EachStrategyHasANameAndARuleOfItsOwn) {
  std::set<std::string> names = {"auto"};
  std::set<int> orders;
  for (const StrategyInfo* info : StrategyInfos()) {
    SCOPED_TRACE(info->name);
    EXPECT_TRUE(names.insert(std::string(info->name)).second);
    EXPECT_TRUE(orders.insert(info->auto_rule.order).second);
    EXPECT_EQ(&InfoOf(info->strategy), info);
    EXPECT_EQ(EnumName(info->strategy), info->name);
    EXPECT_EQ(ParseEnum<Strategy>("strategy", info->name).value(), info->strategy);
    EXPECT_FALSE(info->variants.empty());
    EXPECT_FALSE(info->tuning_fields.empty());
  }
  EXPECT_EQ(AllStrategies().size(), names.size() - 1);
}

TEST(StrategyRegistry, EachSiteHasANumberAndAText) {
  for (const StrategyInfo* info : StrategyInfos()) {
    SCOPED_TRACE(info->name);
    std::set<uint32_t> numbers;
    for (const SiteInfo& site : info->sites) {
      numbers.insert(site.number);
      EXPECT_EQ(site.refused == nullptr, !site.phase.empty() && !site.flag.empty());
    }
    // No gaps: a site that is missing here would be unknown in messages.
    ASSERT_EQ(numbers.size(), info->sites.size());
    EXPECT_EQ(*numbers.begin(), kFirstOwnSite);
    EXPECT_EQ(*numbers.rbegin(), kFirstOwnSite + numbers.size() - 1);
  }
}

// The rows between the marks in README.md, as "| `name` | summary | limits |".
std::set<std::string> RowsOfReadme() {
  std::ifstream file(OCTET_TEST_README);
  std::set<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "<!-- strategies -->") inside = true;
    if (line == "<!-- /strategies -->") inside = false;
    if (inside && absl::StartsWith(line, "| `")) rows.insert(line);
  }
  return rows;
}

TEST(StrategyRegistry, ReadmeHasARowOfEachStrategy) {
  std::set<std::string> rows = RowsOfReadme();
  EXPECT_EQ(rows.size(), StrategyInfos().size());
  for (const StrategyInfo* info : StrategyInfos()) {
    const std::string begin = absl::StrCat("| `", info->name, "` | ", info->summary, " | ");
    const auto row = rows.lower_bound(begin);
    ASSERT_TRUE(row != rows.end() && absl::StartsWith(*row, begin)) << "no row begins " << begin;
    for (const auto& [limit, usual] :
         {std::pair(info->most_tokens, kMaxTokensPerRank),
          std::pair(info->most_experts, kMaxExperts), std::pair(info->most_hidden, kMaxHidden)}) {
      if (limit != usual) EXPECT_TRUE(absl::StrContains(*row, absl::StrCat(limit))) << *row;
    }
  }
}

}  // namespace
}  // namespace octet
