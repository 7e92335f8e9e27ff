// The command line: flags, their mistakes, and help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "tools/commands/command_line.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::array<CommandLine::Letter, 2> kLetters = {{{'n', "count"}, {'q', "name"}}};

struct Values {
  int32_t count = 3;
  bool loud = true;
  double ratio = 0.5;
  std::string name = "it";
};

void AddValues(CommandLine& line, Values& values) {
  line.Add("count", values.count, "how many", "7");
  line.Add("loud", values.loud, "whether it is heard");
  line.Add("ratio", values.ratio, "how much of it");
  line.Add("name", values.name, "what it is called,\nin two lines");
}

class FlagsTest : public testing::Test {
 protected:
  FlagsTest() { AddValues(line_, values_); }

  absl::Status Parse(const std::vector<std::string>& args) { return line_.Parse(args); }
  static std::string Refusal(const std::vector<std::string>& args,
                             absl::Span<const CommandLine::Letter> letters = {}) {
    Values values;
    CommandLine line({}, letters);
    AddValues(line, values);
    const absl::Status status = line.Parse(args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  static int Main(std::vector<std::string> args) {
    std::vector<char*> argv;
    args.insert(args.begin(), "octet");
    for (std::string& arg : args) argv.push_back(arg.data());
    const std::array commands = {
        WithFlags<Values>({.name = "test", .summary = "a command", .details = "Does nothing."},
                          AddValues, [](CommandLine&, Values&) { return 7; })};
    return RunCommandLine(commands, {.version = "a version"}, static_cast<int>(argv.size()),
                          argv.data());
  }

  Values values_;
  CommandLine line_;
};

TEST_F(FlagsTest, AllFormsOfValues) {
  const absl::Status status = Parse({"--count=-4", "--noloud", "--ratio", "0.25", "--name="});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(values_.count, -4);
  EXPECT_FALSE(values_.loud);
  EXPECT_EQ(values_.ratio, 0.25);
  EXPECT_EQ(values_.name, "");
  EXPECT_TRUE(line_.Given("count"));
  EXPECT_TRUE(line_.Given("loud"));
  EXPECT_FALSE(line_.Given("help"));
  ASSERT_TRUE(Parse({"--loud", "--name=a=b", "--count", "5"}).ok());
  EXPECT_TRUE(values_.loud);
  EXPECT_EQ(values_.name, "a=b");
  EXPECT_EQ(values_.count, 5);
  ASSERT_TRUE(Parse({"--loud=false"}).ok());
  EXPECT_FALSE(values_.loud);
}

TEST_F(FlagsTest, TheLastOfEqualFlagsCounts) {
  ASSERT_TRUE(Parse({"--count=1", "--noloud", "--loud", "--count=2"}).ok());
  EXPECT_EQ(values_.count, 2);
  EXPECT_TRUE(values_.loud);
  ASSERT_TRUE(Parse({"--loud", "--noloud"}).ok());
  EXPECT_FALSE(values_.loud);
}

TEST_F(FlagsTest, AnyTextIsAValueBehindItsFlag) {
  for (const std::string text :
       {"--", "-n=6", "--noloud=1", "--name=", "--help", "-h", "-5", "[a]"}) {
    ASSERT_TRUE(Parse({"--name", text}).ok()) << text;
    EXPECT_EQ(values_.name, text);
  }
}

TEST_F(FlagsTest, MistakesAreOneSentence) {
  EXPECT_EQ(Refusal({"--cuont=3"}), "unknown flag '--cuont'; did you mean '--count'?");
  EXPECT_EQ(Refusal({"--something_else"}), "unknown flag '--something_else'");
  EXPECT_THAT(Refusal({"--hidden_from_this_command=1"}), HasSubstr("unknown flag"));
  EXPECT_EQ(Refusal({"--loud="}), "--loud= is not true or false");
  EXPECT_THAT(Refusal({"--flagfile=/etc/passwd"}), HasSubstr("unknown flag"));
  EXPECT_THAT(Refusal({"--nocount"}), HasSubstr("unknown flag '--nocount'"));
  EXPECT_THAT(Refusal({"--noloud=true"}), HasSubstr("unknown flag '--noloud'"));
  EXPECT_EQ(Refusal({"--count"}), "--count needs a value");
  EXPECT_THAT(Refusal({"--count=three"}), StartsWith("--count=three is not a whole number"));
  EXPECT_THAT(Refusal({"--count=1.5"}), HasSubstr("is not a whole number"));
  EXPECT_THAT(Refusal({"--count=3000000000"}), HasSubstr("too large"));
  EXPECT_EQ(Refusal({"--ratio=x"}), "--ratio=x is not a number");
  EXPECT_EQ(Refusal({"--loud=x"}), "--loud=x is not true or false");
  EXPECT_THAT(Refusal({"count"}), HasSubstr("'count' is not a flag"));
  EXPECT_THAT(Refusal({"-count=3"}), HasSubstr("'-count=3' is not a flag"));
  EXPECT_THAT(Refusal({"--"}), HasSubstr("'--' is not a flag"));
  EXPECT_THAT(Refusal({""}), HasSubstr("'' is not a flag"));
}

TEST_F(FlagsTest, Letters) {
  for (const auto& [args, count, name] :
       std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
           {{"-n", "4", "-q5"}, 4, "5"},
           {{"-n=6", "--name=-n"}, 6, "-n"},
           {{"-n", "-4", "-qit"}, -4, "it"}}) {
    Values values;
    CommandLine line({}, kLetters);
    AddValues(line, values);
    const absl::Status status = line.Parse(args);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(values.count, count);
    EXPECT_EQ(values.name, name);
    EXPECT_THAT(line.Help(), HasSubstr("  -n, --count=3\n"));
    EXPECT_THAT(line.Help(), HasSubstr("  --loud=true\n"));
  }
  EXPECT_EQ(Refusal({"-n"}, kLetters), "--count needs a value");
  EXPECT_THAT(Refusal({"-x1"}, kLetters), HasSubstr("'-x1' is not a flag"));
  EXPECT_THAT(Refusal({"-"}, kLetters), HasSubstr("'-' is not a flag"));
  EXPECT_THAT(Refusal({"n"}, kLetters), HasSubstr("'n' is not a flag"));
}

TEST_F(FlagsTest, HelpNamesEveryFlagWithItsDefault) {
  const std::string help = CommandHelp("octet test", "Does nothing.", line_);
  EXPECT_THAT(help, StartsWith("usage: octet test"));
  EXPECT_THAT(help, HasSubstr("Does nothing."));
  EXPECT_THAT(help, HasSubstr("--count=3\n      how many\n"));
  EXPECT_THAT(help, HasSubstr("--loud=true\n"));
  EXPECT_THAT(help, HasSubstr("what it is called,\n      in two lines\n"));
}

TEST_F(FlagsTest, EmulatedGpusHaveDefaultsOfTheirOwn) {
  EXPECT_THAT(line_.Help(), HasSubstr("how many\n      (on emulated GPUs 7, unless given)\n"));
  ASSERT_TRUE(Parse({"--name=x"}).ok());
  line_.UseEmulatedDefaults();
  EXPECT_EQ(values_.count, 7);
  EXPECT_EQ(values_.name, "x");
  EXPECT_FALSE(line_.Given("count"));
  ASSERT_TRUE(Parse({"--count=3"}).ok());
  line_.UseEmulatedDefaults();
  EXPECT_EQ(values_.count, 3);
  line_.HaveOneDefault();
  EXPECT_THAT(line_.Help(), Not(HasSubstr("emulated")));
}

TEST_F(FlagsTest, ChangedFlagsBringTheSameValues) {
  values_ = {.count = 4, .loud = false, .ratio = 0.1, .name = ""};
  const std::vector<std::string> changed = line_.Changed();
  EXPECT_THAT(changed, ElementsAre("--count=4", "--loud=false", "--ratio=0.1", "--name="));
  values_ = {};
  EXPECT_THAT(line_.Changed(), ElementsAre("--count=3"));  // not the default everywhere
  ASSERT_TRUE(Parse(changed).ok());
  EXPECT_EQ(line_.Changed(), changed);
}

TEST_F(FlagsTest, ExitCodes) {
  EXPECT_EQ(Main({}), 2);
  EXPECT_EQ(Main({"--help"}), 0);
  EXPECT_EQ(Main({"help"}), 0);
  EXPECT_EQ(Main({"test"}), 7);
  EXPECT_EQ(Main({"test", "--help"}), 0);
  EXPECT_EQ(Main({"test", "-h", "--count=1"}), 0);
  EXPECT_EQ(Main({"test", "--help", "--wrong"}), 2);
  EXPECT_EQ(Main({"test", "--count=x"}), 2);
  EXPECT_EQ(Main({"test", "--count=x", "--help"}), 0);
  EXPECT_EQ(Main({"tset"}), 2);
}

}  // namespace
}  // namespace octet
