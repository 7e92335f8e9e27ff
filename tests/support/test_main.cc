// The main function of the test programs. A program has the tests of a folder; beside GoogleTest's
// flags it takes
//
//   --source=FILE,...   runs only the tests of these files, which are named without their folders
//
// and both choices hold. A choice of no test at all is an error.
#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace {

bool MatchesAny(absl::string_view patterns, const std::string& name) {
  const std::vector<std::string> all = absl::StrSplit(patterns, ':', absl::SkipEmpty());
  return std::any_of(all.begin(), all.end(), [&name](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

// Whether GoogleTest's `filter`, "<patterns>[-<patterns>]", lets the test run.
bool Passes(const std::string& filter, const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(filter, absl::MaxSplits('-', 1));
  return (parts[0].empty() || MatchesAny(parts[0], name)) &&
         (parts.size() == 1 || !MatchesAny(parts[1], name));
}

bool IsOf(const std::vector<std::string>& sources, const char* file) {
  return std::any_of(sources.begin(), sources.end(), [file](const std::string& source) {
    return absl::EndsWith(absl::StrCat("/", file), absl::StrCat("/", source));
  });
}

// Returns the full names of the tests of these files that the filter lets run.
std::vector<std::string> TestsOf(const std::vector<std::string>& sources,
                                 const std::string& filter) {
  std::vector<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = absl::StrCat(suite.name(), ".", test.name());
      if (IsOf(sources, test.file()) && Passes(filter, name)) names.push_back(name);
    }
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view sources = argv[i];
    if (!absl::ConsumePrefix(&sources, "--source=")) {
      std::cerr << "unknown argument '" << argv[i] << "'\n";
      return 2;
    }
    const std::vector<std::string> names =
        TestsOf(absl::StrSplit(sources, ','), GTEST_FLAG_GET(filter));
    if (names.empty()) {
      std::cerr << argv[i] << " and --gtest_filter=" << GTEST_FLAG_GET(filter) << ": no test\n";
      return 2;
    }
    GTEST_FLAG_SET(filter, absl::StrJoin(names, ":"));
  }
  return RUN_ALL_TESTS();
}
