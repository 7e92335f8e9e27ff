#include "tools/commands/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <numeric>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "tools/support/domain.h"
#include "tools/support/exit_code.h"

namespace octet {
namespace {

constexpr absl::string_view kHelp = "help";

// A launcher ends all processes when one has failed: those that print nothing wait for the first
// one, which does.
constexpr absl::Duration kFirstPrints = absl::Seconds(2);

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

bool IsSwitch(absl::string_view flag) {
  const absl::CommandLineFlag* found = absl::FindCommandLineFlag(flag);
  return found != nullptr && found->IsOfType<bool>();
}

bool Knows(absl::Span<const absl::string_view> flags, absl::string_view flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

absl::Status SetFlag(absl::string_view name, absl::string_view value) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  std::string why;
  if (flag != nullptr && flag->ParseFrom(value, &why)) return absl::OkStatus();
  const bool whole = flag->IsOfType<int32_t>() || flag->IsOfType<int64_t>();
  const bool natural = flag->IsOfType<uint32_t>() || flag->IsOfType<uint64_t>();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, "=", value, " is not ",
                   flag->IsOfType<bool>()     ? "true or false"
                   : natural                  ? "a whole number from 0 up, or is too large"
                   : whole                    ? "a whole number, or is too large"
                   : flag->IsOfType<double>() ? "a number"
                                              : "a value of this flag"));
}

// Returns "-b, " if the flag has a short form; else empty.
std::string LetterOf(const Command& command, absl::string_view flag) {
  for (const ShortFlag& each : command.short_flags) {
    if (each.flag == flag) return absl::StrFormat("-%c, ", each.letter);
  }
  return "";
}

}  // namespace

std::vector<std::string> ExpandShortFlags(absl::Span<const ShortFlag> short_flags,
                                          absl::Span<const std::string> args) {
  std::vector<std::string> expanded;
  for (const std::string& arg : args) {
    const auto flag =
        std::find_if(short_flags.begin(), short_flags.end(), [&](const ShortFlag& each) {
          return arg.size() >= 2 && arg[0] == '-' && arg[1] == each.letter;
        });
    if (flag == short_flags.end()) {
      expanded.push_back(arg);
      continue;
    }
    absl::string_view value = absl::string_view(arg).substr(2);
    absl::ConsumePrefix(&value, "=");
    expanded.push_back(absl::StrCat("--", flag->flag, arg.size() > 2 ? "=" : "", value));
  }
  return expanded;
}

absl::StatusOr<CommandLine> ParseFlags(absl::Span<const absl::string_view> flags,
                                       absl::Span<const std::string> args) {
  std::set<std::string> given;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view arg = args[i];
    if (arg == "-h") arg = "--help";
    if (!absl::ConsumePrefix(&arg, "--") || arg.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", args[i], "' is not a flag; flags have the form --name=value"));
    }
    const size_t equals = arg.find('=');
    absl::string_view name = arg.substr(0, equals);
    const bool has_value = equals != absl::string_view::npos;
    if (name == kHelp) {
      given.emplace(kHelp);
      continue;
    }
    absl::string_view negated = name;
    if (!Knows(flags, name) && absl::ConsumePrefix(&negated, "no") && Knows(flags, negated) &&
        IsSwitch(negated) && !has_value) {
      OCTET_RETURN_IF_ERROR(SetFlag(negated, "false"));
      given.emplace(negated);
      continue;
    }
    if (!Knows(flags, name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag '--", name, "'", DidYouMean(name, flags, "--")));
    }
    absl::string_view value = has_value ? arg.substr(equals + 1) : "true";
    if (!has_value && !IsSwitch(name)) {
      if (i + 1 == args.size()) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
      }
      value = args[++i];
    }
    OCTET_RETURN_IF_ERROR(SetFlag(name, value));
    given.emplace(name);
  }
  return CommandLine(std::move(given));
}

std::string CommandHelp(const Command& command, absl::string_view program) {
  std::string help = absl::StrCat("usage: ", program, program.empty() ? "" : " ", command.name,
                                  command.flags.empty() ? "" : " [--flag=value ...]", "\n\n",
                                  command.details, "\n");
  if (command.flags.empty()) return help;
  absl::StrAppend(&help, "\nflags (with their defaults):\n");
  for (const absl::string_view name : command.flags) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    const auto own = std::find_if(command.flag_help.begin(), command.flag_help.end(),
                                  [name](const FlagHelp& each) { return each.flag == name; });
    const bool found = own != command.flag_help.end();
    const std::string text = found ? std::string(own->text) : flag->Help();
    absl::StrAppendFormat(&help, "  %s--%s=%s\n", LetterOf(command, name), name,
                          found ? std::string(own->value) : flag->DefaultValue());
    absl::StrAppend(&help, "      ", absl::StrReplaceAll(text, {{"\n", "\n      "}}), "\n");
  }
  return help;
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
    if (launch.first()) {
      absl::FPrintF(stderr, "%s", Usage(commands));
    } else {
      absl::SleepFor(kFirstPrints);
    }
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
  absl::StatusOr<CommandLine> line =
      ParseFlags(command->flags, ExpandShortFlags(command->short_flags, args.subspan(1)));
  if (!line.ok()) return Refuse(name, launch, line.status());
  if (line->Given(kHelp)) return Tell(launch, CommandHelp(*command));
  if (launch.several() && !command->several_nodes) {
    return Refuse(
        name, launch,
        absl::InvalidArgumentError(absl::StrCat(
            "this command is for one node; ", launch.num_processes,
            " processes have been started (docs/several_nodes.md says what they can run)")));
  }
  line->set_launch(launch);
  return command->run(*line);
}

}  // namespace

absl::Status AsUsageError(const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

void PrintErrorOnce(absl::string_view command, bool first, const absl::Status& status) {
  if (first) {
    PrintError(command, status);
  } else {
    absl::SleepFor(kFirstPrints);
  }
}

int FailToJoin(absl::string_view command, const Launch& launch, const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    PrintErrorOnce(command, launch.first(), status);
  } else {
    PrintError(command, status);
  }
  return ExitCodeOf(status);
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
