// `octet <command> [--flag=value ...]`: finds the command and reads its flags.
//
// Flags are Abseil's, read by a loop of our own, so that a mistake ends in one sentence and exit
// code 2, and so that each command knows its own flags only.
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

namespace octet {

// Lists of flags, one after the other.
template <size_t... kSizes>
constexpr auto JoinFlags(const std::array<absl::string_view, kSizes>&... lists) {
  std::array<absl::string_view, (kSizes + ...)> joined;
  auto end = joined.begin();
  ((end = std::copy(lists.begin(), lists.end(), end)), ...);
  return joined;
}

// What was on the command line. Values are in the flags themselves (absl::GetFlag).
class CommandLine {
 public:
  CommandLine() = default;
  explicit CommandLine(std::set<std::string> given) : given_(std::move(given)) {}
  bool Given(absl::string_view flag) const { return given_.count(std::string(flag)) > 0; }

 private:
  std::set<std::string> given_;
};

// A flag that one letter stands for: -n 20, -n20 and -n=20 are --iters=20.
struct ShortFlag {
  char letter;
  absl::string_view flag;
};

struct Command {
  absl::string_view name;
  absl::string_view summary;                  // a line
  absl::string_view details;                  // for the command's --help
  absl::Span<const absl::string_view> flags;  // names of ABSL_FLAGs, in the order of --help
  int (*run)(const CommandLine& line);        // gives the exit code
  absl::Span<const ShortFlag> short_flags = {};
};

// Sets `flags` (names) from `args`: --name=value, --name value, and for switches --name and
// --noname. "help" is always understood, and is only recorded. kInvalidArgument with one sentence.
absl::StatusOr<CommandLine> ParseFlags(absl::Span<const absl::string_view> flags,
                                       absl::Span<const std::string> args);

// `args` with the letters written out; what is none of `short_flags` stays as it is.
std::vector<std::string> ExpandShortFlags(absl::Span<const ShortFlag> short_flags,
                                          absl::Span<const std::string> args);

// The help of one command of `program`: usage, details, and each flag with its default.
std::string CommandHelp(const Command& command, absl::string_view program = "octet");

// The whole program. `version`: a line for --version. What has not arrived on standard output is an
// error, too: a full disk must not look like a result.
int RunCommandLine(absl::Span<const Command> commands, absl::string_view version, int argc,
                   char** argv);

// What was printed may still be in memory, and where it goes may be full.
absl::Status FlushStandardOutput();

// "octet run: sentence" on stderr, and below it what else the status has to say.
void PrintError(absl::string_view command, const absl::Status& status);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_COMMAND_LINE_H_
