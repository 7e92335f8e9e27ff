// `octet <command> [--flag=value ...]`: finds the command and reads its flags.
//
// Flags are Abseil's, but a loop here reads them, so that a mistake ends in one sentence and exit
// code 2, and each command knows its own flags only.
#ifndef OCTET_TOOLS_COMMANDS_COMMAND_LINE_H_
#define OCTET_TOOLS_COMMANDS_COMMAND_LINE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/support/launch.h"

namespace octet {

// Concatenates lists of flags.
template <size_t... kSizes>
constexpr auto JoinFlags(const std::array<absl::string_view, kSizes>&... lists) {
  std::array<absl::string_view, (kSizes + ...)> joined;
  auto end = joined.begin();
  ((end = std::copy(lists.begin(), lists.end(), end)), ...);
  return joined;
}

// The contents of the command line, and how many processes have been given it. Values are in the
// flags themselves (absl::GetFlag).
class CommandLine {
 public:
  CommandLine() = default;
  explicit CommandLine(std::set<std::string> given) : given_(std::move(given)) {}
  bool Given(absl::string_view flag) const { return given_.count(std::string(flag)) > 0; }

  const Launch& launch() const { return launch_; }
  void set_launch(const Launch& launch) { launch_ = launch; }

 private:
  std::set<std::string> given_;
  Launch launch_;
};

// A one-letter form of a flag: -n 20, -n20 and -n=20 are --iters=20.
struct ShortFlag {
  char letter;
  absl::string_view flag;
};

// What --help says of a flag instead of what the flag itself says: to one command it may mean
// something else than to others.
struct FlagHelp {
  absl::string_view flag;
  absl::string_view value;  // behind "=": the default
  absl::string_view text;   // lines as in ABSL_FLAG
};

struct Command {
  absl::string_view name;
  absl::string_view summary;                  // one line
  absl::string_view details;                  // for the command's --help
  absl::Span<const absl::string_view> flags;  // names of ABSL_FLAGs, in the order of --help
  int (*run)(const CommandLine& line);        // returns the exit code
  absl::Span<const ShortFlag> short_flags = {};
  absl::Span<const FlagHelp> flag_help = {};
  bool several_nodes = false;  // may run as one of several processes; others are refused there
};

// Sets `flags` (names) from `args`: --name=value, --name value, and for switches --name and
// --noname. "help" is always understood, and is only recorded. Returns kInvalidArgument with one
// sentence.
absl::StatusOr<CommandLine> ParseFlags(absl::Span<const absl::string_view> flags,
                                       absl::Span<const std::string> args);

// Returns `args` with the letters written out; arguments that are not in `short_flags` stay
// unchanged.
std::vector<std::string> ExpandShortFlags(absl::Span<const ShortFlag> short_flags,
                                          absl::Span<const std::string> args);

// Returns the help of one command of `program`: usage, details, and each flag with its default.
std::string CommandHelp(const Command& command, absl::string_view program = "octet");

// What a program is besides its commands.
struct Program {
  std::string version;  // a line for --version
  Launch launch = {};
};

// Runs the whole program. A failure to write standard output is an error too: a full disk must not
// look like a result. Of several processes, the first one prints help; a mistake in the command
// line of one of them ends all.
int RunCommandLine(absl::Span<const Command> commands, const Program& program, int argc,
                   char** argv);

// Flushes standard output. Returns an error if that fails, for example because a disk is full.
absl::Status FlushStandardOutput();

// Prints "octet run: sentence" on stderr, and the message's further lines below it.
void PrintError(absl::string_view command, const absl::Status& status);

// Returns the error as one of the user: kInvalidArgument with the same message. OK stays OK.
absl::Status AsUsageError(const absl::Status& status);

// Prints an error that all processes have in the first one of them. The others wait for a moment,
// so that it can, since a launcher ends all processes when one has failed.
void PrintErrorOnce(absl::string_view command, bool first, const absl::Status& status);

// Reports that JoinDomain has failed, and returns the exit code. A mistake of the user's is known
// to all processes, and only the first one prints it.
int FailToJoin(absl::string_view command, const Launch& launch, const absl::Status& status);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_COMMAND_LINE_H_
