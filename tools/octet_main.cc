// The program `octet`. A command joins with one line.
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/commands/command_line.h"
#include "tools/commands/gemm_command.h"
#include "tools/commands/layer_command.h"
#include "tools/commands/perf_command.h"
#include "tools/commands/run_command.h"
#include "tools/commands/topo_command.h"
#include "tools/commands/trace_command.h"
#include "tools/commands/tune_command.h"
#include "tools/support/commit.h"

int main(int argc, char** argv) {
  const std::array commands = {
      octet::RunCommand(),  octet::PerfCommand(),  octet::TraceCommand(), octet::TuneCommand(),
      octet::GemmCommand(), octet::LayerCommand(), octet::TopoCommand(),
  };
  const std::string version =
      absl::StrCat("octet " OCTET_VERSION ", " OCTET_PLATFORM_NAME ", commit ", octet::Commit());
  return octet::RunCommandLine(commands, version, argc, argv);
}
