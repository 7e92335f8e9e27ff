// The program `octet`. A command joins with one line.
#include <array>

#include "tools/command_line.h"
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
  return octet::RunCommandLine(commands, argc, argv);
}
