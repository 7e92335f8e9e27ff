// The program `octet`. A command joins with one line.
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/command_line.h"
#include "tools/commit.h"
#include "tools/perf_command.h"
#include "tools/run_command.h"
#include "tools/topo_command.h"
#include "tools/trace_command.h"
#include "tools/tune_command.h"

int main(int argc, char** argv) {
  const std::array commands = {
      octet::RunCommand(),  octet::PerfCommand(), octet::TraceCommand(),
      octet::TuneCommand(), octet::TopoCommand(),
  };
  const std::string version =
      absl::StrCat("octet " OCTET_VERSION ", " OCTET_PLATFORM_NAME ", commit ", octet::Commit());
  return octet::RunCommandLine(commands, version, argc, argv);
}
