// `octet <command> [--flag=value ...]`: finds the command, and sets what its flags are bound to.
//
// CLI11 reads the flags. Each command knows its own only, and a mistake ends in one sentence and
// exit code 2.
#ifndef OCTET_TOOLS_COMMANDS_COMMAND_LINE_H_
#define OCTET_TOOLS_COMMANDS_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "tools/support/launch.h"

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
class Option;
}  // namespace CLI

namespace octet {

// The variable of a flag. `flag` is the flag's name, for the sentence that refuses a text.
struct FlagValue {
  std::function<absl::Status(absl::string_view flag, absl::string_view text)> set = {};
  std::function<std::string()> text = {};
  bool is_switch = false;
};

// Binds a flag to `value`: read(flag, text) returns StatusOr<T>, text(value) what StrCat takes.
template <typename T, typename Read, typename Text>
FlagValue Bound(T& value, const Read& read, const Text& text) {
  return {.set = [&value, read](absl::string_view flag, absl::string_view given) -> absl::Status {
            absl::StatusOr<T> parsed = read(flag, given);
            if (!parsed.ok()) return parsed.status();
            value = *std::move(parsed);
            return absl::OkStatus();
          },
          .text = [&value, text] { return absl::StrCat(text(value)); }};
}

FlagValue ValueOf(int32_t& value);
FlagValue ValueOf(uint64_t& value);
FlagValue ValueOf(double& value);
FlagValue ValueOf(bool& value);
FlagValue ValueOf(std::string& value);
FlagValue ValueOf(std::optional<int>& value);        // empty: the flag has not been given
FlagValue ValueOf(std::vector<std::string>& value);  // with commas between them

// An enumerator, by its name; one of `some`, if there are any.
template <typename T>
  requires std::is_enum_v<T>
FlagValue ValueOf(T& value, std::initializer_list<T> some = {}) {
  const auto read = [some = std::vector<T>(some)](absl::string_view flag,
                                                  absl::string_view text) -> absl::StatusOr<T> {
    absl::StatusOr<T> parsed = ParseEnum<T>(absl::StrCat("--", flag), text);
    if (some.empty() || (parsed.ok() && absl::c_linear_search(some, *parsed))) return parsed;
    const auto add_name = [](std::string* out, T each) { absl::StrAppend(out, EnumName(each)); };
    return absl::InvalidArgumentError(absl::StrCat("--", flag, " '", text, "' is not one of ",
                                                   absl::StrJoin(some, ", ", add_name)));
  };
  return Bound(value, read, EnumName<T>);
}

// Read a whole number, also one from `low` to `high` only, and any number.
absl::StatusOr<int> WholeNumber(absl::string_view flag, absl::string_view text);
absl::StatusOr<int> WholeNumber(absl::string_view flag, absl::string_view text, int low, int high);
absl::StatusOr<double> Number(absl::string_view flag, absl::string_view text);
absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t low, int64_t high);

FlagValue InRange(int32_t& value, int32_t low, int32_t high);

// The flags of a command: what they are bound to before they are read, and which were given.
class CommandLine {
 public:
  // A one-letter form of a flag: -n 20, -n20 and -n=20 are --iters=20.
  struct Letter {
    char letter;
    absl::string_view flag;
  };
  // A flag as --help describes it.
  struct Flag {
    std::string name;
    std::string help;
    std::string default_text;
    std::string emulated_text;  // the default on emulated GPUs, if that is another one
    FlagValue value;
    CLI::Option* option;
  };

  explicit CommandLine(const Launch& launch = {}, absl::Span<const Letter> letters = {});
  ~CommandLine();

  // Adds a flag whose default is the present value. Where GPUs are emulated, UseEmulatedDefaults
  // makes `emulated` its default. What it is bound to must outlive this object.
  void Add(absl::string_view name, FlagValue value, absl::string_view help,
           absl::string_view emulated = "");
  template <typename T>
    requires(!std::is_same_v<T, FlagValue>)
  void Add(absl::string_view name, T& value, absl::string_view help,
           absl::string_view emulated = "") {
    Add(name, ValueOf(value), help, emulated);
  }

  // Takes back the defaults on emulated GPUs of the flags added so far.
  void HaveOneDefault();

  // Sets what the flags are bound to: --name=value, --name value, for switches --name and --noname.
  // --help is always understood; it is only recorded. Returns kInvalidArgument with one sentence.
  absl::Status Parse(const std::vector<std::string>& args);

  // Gives flags that were not given the defaults of emulated GPUs, which compute small shapes in a
  // moment.
  void UseEmulatedDefaults();

  bool Has(absl::string_view name) const { return Find(name) != nullptr; }
  bool Given(absl::string_view name) const;
  // Returns kInvalidArgument, "--topk SENTENCE", for the first of `flags` that was given.
  absl::Status Refuse(absl::Span<const absl::string_view> flags, absl::string_view sentence) const;
  absl::Span<const Flag> flags() const { return flags_; }
  // Returns "--name=value" for every flag whose value is not its default everywhere.
  std::vector<std::string> Changed() const;
  // Returns a paragraph for each flag.
  std::string Help() const;
  // How many processes have been given this command line.
  const Launch& launch() const { return launch_; }

 private:
  const Flag* Find(absl::string_view name) const;
  std::string LetterOf(absl::string_view flag) const;
  std::string Marked(const std::string& arg) const;
  absl::Status Unknown(absl::string_view word) const;

  const Launch launch_;
  const std::vector<Letter> letters_;
  std::vector<Flag> flags_;
  std::unique_ptr<CLI::App> app_;
};

struct Command {
  absl::string_view name = {};
  absl::string_view summary = {};  // one line
  absl::string_view details = {};  // for the command's --help
  absl::Span<const CommandLine::Letter> letters = {};
  bool several_nodes = false;  // may run as one of several processes; others are refused there
  std::function<void(CommandLine&)> add_flags = {};
  std::function<int(CommandLine&)> run = {};  // returns the exit code
};

// Returns the command with flags that `add_flags` binds to a Spec, which `run` is then given.
template <typename Spec>
Command WithFlags(Command command, void (*add_flags)(CommandLine&, Spec&),
                  int (*run)(CommandLine&, Spec&)) {
  const auto spec = std::make_shared<Spec>();
  command.add_flags = [=](CommandLine& line) { add_flags(line, *spec); };
  command.run = [=](CommandLine& line) { return run(line, *spec); };
  return command;
}

// Returns the help of a command: usage, details, and each flag with its default. `title`: what
// stands before the flags, "octet run".
std::string CommandHelp(absl::string_view title, absl::string_view details,
                        const CommandLine& line);

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

// Reports an error that all processes have, in the first one of them, and returns this process's
// exit code: `code` in the first one. The others end with 0, since a launcher ends all processes
// when one has failed, and the first may not have printed yet; the launcher's code is `code`.
int FailOnce(absl::string_view command, bool first, const absl::Status& status, int code);

// Reports that JoinDomain has failed, and returns the exit code. A mistake of the user's is known
// to all processes, and only the first one reports it.
int FailToJoin(absl::string_view command, const Launch& launch, const absl::Status& status);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_COMMAND_LINE_H_
