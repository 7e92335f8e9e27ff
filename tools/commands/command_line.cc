#include "tools/commands/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/flags/marshalling.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "tools/support/domain.h"
#include "tools/support/exit_code.h"

namespace octet {
namespace {

constexpr absl::string_view kHelp = "help";

// Returns the number of insertions, deletions and replacements that turn one word into the other.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Returns "; did you mean 'x'?" for the word nearest to `word`; empty if none is near.
std::string DidYouMean(absl::string_view word, absl::Span<const absl::string_view> known,
                       absl::string_view prefix) {
  constexpr size_t kLettersPerMistake = 3;
  size_t best = std::max<size_t>(2, word.size() / kLettersPerMistake) + 1;
  absl::string_view nearest;
  for (const absl::string_view candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest.empty() ? "" : absl::StrCat("; did you mean '", prefix, nearest, "'?");
}

// Stands for "" and before what CLI11 must not take for a flag; no argument has it.
constexpr char kMark = '\x01';

std::string WithoutMark(std::string text) {
  std::erase(text, kMark);
  return text;
}

absl::Status Refusal(absl::string_view flag, absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", text, " is not ", what));
}

// Reads a value in the forms that Abseil knows.
template <typename T>
absl::StatusOr<T> Read(absl::string_view flag, absl::string_view text, absl::string_view what) {
  std::string why;
  T value = {};
  if (!absl::ParseFlag(text, &value, &why)) return Refusal(flag, text, what);
  return value;
}

template <typename T>
FlagValue Plain(T& value, absl::string_view what) {
  return Bound(
      value,
      [what](absl::string_view flag, absl::string_view text) { return Read<T>(flag, text, what); },
      [](const T& of) { return absl::UnparseFlag(of); });
}

constexpr absl::string_view kWhole = "a whole number, or is too large";
constexpr absl::string_view kAnyNumber = "a number";

}  // namespace

FlagValue ValueOf(int32_t& value) { return Plain(value, kWhole); }
FlagValue ValueOf(uint64_t& value) {
  return Plain(value, "a whole number from 0 up, or is too large");
}
FlagValue ValueOf(double& value) { return Plain(value, kAnyNumber); }
FlagValue ValueOf(std::string& value) { return Plain(value, "a text"); }
FlagValue ValueOf(std::vector<std::string>& value) { return Plain(value, "a list"); }
FlagValue ValueOf(bool& value) {
  FlagValue bound = Plain(value, "true or false");
  bound.is_switch = true;
  return bound;
}
FlagValue ValueOf(std::optional<int>& value) {
  const auto read = [](absl::string_view flag, absl::string_view text) {
    return absl::StatusOr<std::optional<int>>(WholeNumber(flag, text));
  };
  return Bound(value, read, [](std::optional<int> of) { return of ? absl::StrCat(*of) : ""; });
}

absl::StatusOr<int> WholeNumber(absl::string_view flag, absl::string_view text) {
  return Read<int>(flag, text, kWhole);
}
absl::StatusOr<int> WholeNumber(absl::string_view flag, absl::string_view text, int low, int high) {
  absl::StatusOr<int> number = WholeNumber(flag, text);
  if (number.ok()) OCTET_RETURN_IF_ERROR(CheckRange(flag, *number, low, high));
  return number;
}
absl::StatusOr<double> Number(absl::string_view flag, absl::string_view text) {
  return Read<double>(flag, text, kAnyNumber);
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Refusal(flag, absl::StrCat(value), absl::StrCat("from ", low, " to ", high));
}

FlagValue InRange(int32_t& value, int32_t low, int32_t high) {
  const auto read = [low, high](absl::string_view flag, absl::string_view text) {
    return WholeNumber(flag, text, low, high);
  };
  return Bound(value, read, [](int of) { return of; });
}

CommandLine::CommandLine(const Launch& launch, absl::Span<const Letter> letters)
    : launch_(launch),
      letters_(letters.begin(), letters.end()),
      app_(std::make_unique<CLI::App>()) {
  app_->allow_extras();
  app_->set_help_flag();
  app_->add_flag("-h,--help");
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CommandLine::~CommandLine() = default;

void CommandLine::Add(absl::string_view name, FlagValue value, absl::string_view help,
                      absl::string_view emulated) {
  const std::string letter = LetterOf(name);
  const std::string names = absl::StrCat("--", name, letter.empty() ? "" : ",", letter);
  CLI::Option* const option = value.is_switch ? app_->add_flag(absl::StrCat(names, ",!--no", name))
                                              : app_->add_option(names);
  flags_.push_back({.name = std::string(name),
                    .help = std::string(help),
                    .default_text = value.text(),
                    .emulated_text = std::string(emulated),
                    .value = std::move(value),
                    .option = option});
}

absl::Status CommandLine::Parse(const std::vector<std::string>& args) {
  std::vector<std::string> words;
  for (const std::string& arg : args) words.push_back(Marked(arg));
  std::reverse(words.begin(), words.end());
  try {
    app_->parse(std::move(words));  // takes them from the back
  } catch (const CLI::ArgumentMismatch& mismatch) {
    const absl::string_view what = mismatch.what();
    return absl::InvalidArgumentError(
        absl::StrCat(what.substr(0, what.find(':')), " needs a value"));
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (const std::vector<std::string> unknown = app_->remaining(); !unknown.empty()) {
    return Unknown(WithoutMark(unknown.front()));
  }
  if (Given(kHelp)) return absl::OkStatus();
  for (const Flag& flag : flags_) {
    if (flag.option->count() == 0) continue;
    std::string text = WithoutMark(flag.option->results().back());
    if (text[0] == '=' && !LetterOf(flag.name).empty()) text.erase(0, 1);  // -n=20
    if (const absl::Status status = flag.value.set(flag.name, text); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Marks what CLI11 would understand otherwise: "--" is no flag, --noname has no value, and the
// value of --name= is empty.
std::string CommandLine::Marked(const std::string& arg) const {
  const size_t equals = arg.find('=');
  if (arg == "--" || (absl::StartsWith(arg, "--no") && equals != std::string::npos &&
                      Find(arg.substr(2, equals - 2)) == nullptr)) {
    return kMark + arg;
  }
  return absl::StartsWith(arg, "--") && equals == arg.size() - 1 ? arg + kMark : arg;
}

absl::Status CommandLine::Unknown(absl::string_view word) const {
  absl::string_view name = word.substr(0, word.find('='));
  if (!absl::ConsumePrefix(&name, "--") || name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", word, "' is not a flag; flags have the form --name=value"));
  }
  std::vector<absl::string_view> names;
  for (const Flag& flag : flags_) names.emplace_back(flag.name);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag '--", name, "'", DidYouMean(name, names, "--")));
}

const CommandLine::Flag* CommandLine::Find(absl::string_view name) const {
  const auto found =
      absl::c_find_if(flags_, [name](const Flag& flag) { return flag.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

void CommandLine::HaveOneDefault() {
  for (Flag& flag : flags_) flag.emulated_text.clear();
}

void CommandLine::UseEmulatedDefaults() {
  for (const Flag& flag : flags_) {
    if (flag.emulated_text.empty() || Given(flag.name)) continue;
    flag.value.set(flag.name, flag.emulated_text).IgnoreError();
  }
}

bool CommandLine::Given(absl::string_view name) const {
  if (name == kHelp) return app_->count("--help") > 0;
  const Flag* const flag = Find(name);
  return flag != nullptr && flag->option->count() > 0;
}

absl::Status CommandLine::Refuse(absl::Span<const absl::string_view> flags,
                                 absl::string_view sentence) const {
  for (const absl::string_view flag : flags) {
    if (Given(flag)) return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", sentence));
  }
  return absl::OkStatus();
}

std::vector<std::string> CommandLine::Changed() const {
  std::vector<std::string> changed;
  for (const Flag& flag : flags_) {
    const std::string text = flag.value.text();
    if (text == flag.default_text && flag.emulated_text.empty()) continue;
    changed.push_back(absl::StrCat("--", flag.name, "=", text));
  }
  return changed;
}

std::string CommandLine::LetterOf(absl::string_view flag) const {
  for (const Letter& each : letters_) {
    if (each.flag == flag) return absl::StrFormat("-%c", each.letter);
  }
  return "";
}

std::string CommandLine::Help() const {
  std::string help;
  for (const Flag& flag : flags_) {
    const std::string letter = LetterOf(flag.name);
    absl::StrAppend(&help, "  ", letter, letter.empty() ? "" : ", ", "--", flag.name, "=",
                    flag.default_text, "\n      ",
                    absl::StrReplaceAll(flag.help, {{"\n", "\n      "}}), "\n");
    if (flag.emulated_text.empty()) continue;
    absl::StrAppend(&help, "      (on emulated GPUs ", flag.emulated_text, ", unless given)\n");
  }
  return help;
}

std::string CommandHelp(absl::string_view title, absl::string_view details,
                        const CommandLine& line) {
  const std::string flags = line.Help();
  return absl::StrCat("usage: ", title, flags.empty() ? "" : " [--flag=value ...]", "\n\n", details,
                      "\n", flags.empty() ? "" : "\nflags (with their defaults):\n", flags);
}

absl::Status FlushStandardOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  // The reason of an earlier failed write is not known.
  constexpr absl::string_view kWhat = "cannot write all to standard output";
  return errno == 0 ? absl::DataLossError(kWhat) : absl::ErrnoToStatus(errno, kWhat);
}

void PrintError(absl::string_view command, const absl::Status& status) {
  absl::FPrintF(stderr, "octet%s%s: %s\n", command.empty() ? "" : " ", command, status.message());
}

namespace {

// Refuses the command line, in all processes if there are several.
int Refuse(absl::string_view command, const Launch& launch, const absl::Status& why) {
  return FailToJoin(command, launch, JoinDomain(launch, {.prepared = why}).status());
}

int Tell(const Launch& launch, absl::string_view text) {
  if (launch.first()) absl::PrintF("%s", text);
  return kExitOk;
}

// Returns what --help prints.
std::string Usage(absl::Span<const Command> commands) {
  std::string usage = "usage: octet <command> [--flag=value ...]\n\ncommands:\n";
  for (const Command& command : commands) {
    absl::StrAppendFormat(&usage, "  %-8s %s\n", command.name, command.summary);
  }
  absl::StrAppend(&usage, "\n'octet <command> --help' explains a command and its flags; ",
                  "'octet --version' says what this is.\n");
  return usage;
}

// Runs the command that the first of `args` names with the other arguments.
int RunNamedCommand(absl::Span<const Command> commands, const Program& program,
                    absl::Span<const std::string> args) {
  const Launch& launch = program.launch;
  if (args.empty()) {
    if (!launch.first()) return kExitOk;  // as FailOnce
    absl::FPrintF(stderr, "%s", Usage(commands));
    return kExitUsage;
  }
  const std::string& name = args.front();
  if (name == "--help" || name == "-h" || (name == kHelp && args.size() == 1)) {
    return Tell(launch, Usage(commands));
  }
  if (name == "--version") return Tell(launch, absl::StrCat(program.version, "\n"));
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const Command& each) { return each.name == name; });
  if (command == commands.end()) {
    std::vector<absl::string_view> names;
    for (const Command& each : commands) names.push_back(each.name);
    return Refuse("", launch,
                  absl::InvalidArgumentError(
                      absl::StrCat("unknown command '", name, "'", DidYouMean(name, names, ""))));
  }
  CommandLine line(launch, command->letters);
  command->add_flags(line);
  const absl::Status parsed = line.Parse({args.begin() + 1, args.end()});
  if (!parsed.ok()) return Refuse(name, launch, parsed);
  if (line.Given(kHelp)) {
    return Tell(launch, CommandHelp(absl::StrCat("octet ", name), command->details, line));
  }
  if (launch.several() && !command->several_nodes) {
    return Refuse(
        name, launch,
        absl::InvalidArgumentError(absl::StrCat(
            "this command is for one node; ", launch.num_processes,
            " processes have been started (docs/several_nodes.md says what they can run)")));
  }
  return command->run(line);
}

}  // namespace

absl::Status AsUsageError(const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

int FailOnce(absl::string_view command, bool first, const absl::Status& status, int code) {
  if (!first) return kExitOk;
  PrintError(command, status);
  return code;
}

int FailToJoin(absl::string_view command, const Launch& launch, const absl::Status& status) {
  const int code = ExitCodeOf(status);
  if (absl::IsInvalidArgument(status)) return FailOnce(command, launch.first(), status, code);
  PrintError(command, status);
  return code;
}

int RunCommandLine(absl::Span<const Command> commands, const Program& program, int argc,
                   char** argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const int code = RunNamedCommand(commands, program, args);
  const absl::Status written = FlushStandardOutput();
  if (written.ok()) return code;
  PrintError("", written);
  return code == kExitOk ? kExitUsage : code;
}

}  // namespace octet
