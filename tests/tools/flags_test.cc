// The command line: flags, their mistakes, and help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "tools/commands/command_line.h"

ABSL_FLAG(int32_t, count, 3, "how many");
ABSL_FLAG(bool, loud, true, "whether it is heard");
ABSL_FLAG(double, ratio, 0.5, "how much of it");
ABSL_FLAG(std::string, name, "it", "what it is called,\nin two lines");
ABSL_FLAG(uint64_t, hidden_from_this_command, 0, "not ours");

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::array<absl::string_view, 4> kFlags = {"count", "loud", "ratio", "name"};

Command TestCommand() {
  return {.name = "test",
          .summary = "a command",
          .details = "Does nothing.",
          .flags = kFlags,
          .run = [](const CommandLine&) { return 7; }};
}

class FlagsTest : public testing::Test {
 protected:
  static absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& args) {
    return ParseFlags(kFlags, args);
  }
  static std::string Refusal(const std::vector<std::string>& args) {
    const absl::StatusOr<CommandLine> line = Parse(args);
    EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(line.status().message());
  }
  static int Main(std::vector<std::string> args) {
    std::vector<char*> argv;
    args.insert(args.begin(), "octet");
    for (std::string& arg : args) argv.push_back(arg.data());
    const std::array commands = {TestCommand()};
    return RunCommandLine(commands, {.version = "a version"}, static_cast<int>(argv.size()),
                          argv.data());
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(FlagsTest, AllFormsOfValues) {
  const absl::StatusOr<CommandLine> line =
      Parse({"--count=-4", "--noloud", "--ratio", "0.25", "--name="});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(absl::GetFlag(FLAGS_count), -4);
  EXPECT_FALSE(absl::GetFlag(FLAGS_loud));
  EXPECT_EQ(absl::GetFlag(FLAGS_ratio), 0.25);
  EXPECT_EQ(absl::GetFlag(FLAGS_name), "");
  EXPECT_TRUE(line->Given("count"));
  EXPECT_TRUE(line->Given("loud"));
  EXPECT_FALSE(line->Given("help"));
  ASSERT_TRUE(Parse({"--loud", "--name=a=b", "--count", "5"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_loud));
  EXPECT_EQ(absl::GetFlag(FLAGS_name), "a=b");
  EXPECT_EQ(absl::GetFlag(FLAGS_count), 5);
  ASSERT_TRUE(Parse({"--loud=false"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_loud));
}

TEST_F(FlagsTest, MistakesAreOneSentence) {
  EXPECT_EQ(Refusal({"--cuont=3"}), "unknown flag '--cuont'; did you mean '--count'?");
  EXPECT_EQ(Refusal({"--something_else"}), "unknown flag '--something_else'");
  EXPECT_THAT(Refusal({"--hidden_from_this_command=1"}), HasSubstr("unknown flag"));
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

TEST_F(FlagsTest, LettersAreWrittenOut) {
  constexpr std::array<ShortFlag, 2> kShort = {{{'n', "count"}, {'q', "name"}}};
  const auto expand = [&](const std::vector<std::string>& args) {
    return ExpandShortFlags(kShort, args);
  };
  EXPECT_THAT(expand({"-n", "4", "-q5", "-n=6", "--name=-n"}),
              ElementsAre("--count", "4", "--name=5", "--count=6", "--name=-n"));
  EXPECT_THAT(expand({"-h", "-x1", "-", "n", ""}), ElementsAre("-h", "-x1", "-", "n", ""));
  ASSERT_TRUE(Parse(expand({"-n", "-4", "-qit"})).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_count), -4);
  EXPECT_EQ(Refusal(expand({"-n"})), "--count needs a value");
  Command command = TestCommand();
  command.short_flags = kShort;
  EXPECT_THAT(CommandHelp(command), HasSubstr("  -n, --count=3\n"));
  EXPECT_THAT(CommandHelp(command), HasSubstr("  --loud=true\n"));
}

TEST_F(FlagsTest, ACommandMaySayWhatAFlagMeansToIt) {
  constexpr std::array<FlagHelp, 1> kOwn = {{{"count", "many", "here,\nanother number"}}};
  Command command = TestCommand();
  command.flag_help = kOwn;
  const std::string help = CommandHelp(command);
  EXPECT_THAT(help, HasSubstr("  --count=many\n      here,\n      another number\n"));
  EXPECT_THAT(help, Not(HasSubstr("how many")));
  EXPECT_THAT(help, HasSubstr("  --loud=true\n      whether it is heard\n"));
}

TEST_F(FlagsTest, HelpNamesEveryFlagWithItsDefault) {
  const std::string help = CommandHelp(TestCommand());
  EXPECT_THAT(help, StartsWith("usage: octet test"));
  EXPECT_THAT(help, HasSubstr("Does nothing."));
  EXPECT_THAT(help, HasSubstr("--count=3\n      how many\n"));
  EXPECT_THAT(help, HasSubstr("--loud=true\n"));
  EXPECT_THAT(help, HasSubstr("what it is called,\n      in two lines\n"));
}

TEST_F(FlagsTest, ExitCodes) {
  EXPECT_EQ(Main({}), 2);
  EXPECT_EQ(Main({"--help"}), 0);
  EXPECT_EQ(Main({"help"}), 0);
  EXPECT_EQ(Main({"test"}), 7);
  EXPECT_EQ(Main({"test", "--help"}), 0);
  EXPECT_EQ(Main({"test", "-h", "--count=1"}), 0);
  EXPECT_EQ(Main({"test", "--help", "--wrong"}), 2);
  EXPECT_EQ(Main({"tset"}), 2);
}

}  // namespace
}  // namespace octet
