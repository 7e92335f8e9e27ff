// The programs `octet` and `octet_mpi`, which differ in what they are linked to
// (tools/support/launch.h). A command joins with one line.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/commands/command_line.h"
#include "tools/commands/commands.h"
#include "tools/support/commit.h"
#include "tools/support/exit_code.h"
#include "tools/support/launch.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace {

// Each node has threads of its own, and by default glibc gives each thread one of up to 8 arenas
// per core, which never shrink to what is in use: nodes that come and go fill all of them.
void KeepHeapSmall() {
#ifdef __GLIBC__
  constexpr int kArenas = 2;
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, kArenas);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  KeepHeapSmall();
  const std::array commands = {
      octet::RunCommand(),   octet::PerfCommand(),    octet::TraceCommand(),
      octet::TuneCommand(),  octet::GemmCommand(),    octet::LayerCommand(),
      octet::ModelCommand(), octet::BalanceCommand(), octet::TopoCommand(),
  };
  octet::Program program = {
      .version = absl::StrCat("octet " OCTET_VERSION ", " OCTET_PLATFORM_NAME ", commit ",
                              octet::Commit()),
      .launch = octet::LaunchOf([](const char* name) { return std::getenv(name); })};
  if (octet::Launch& launch = program.launch; launch.several()) {
    const absl::StatusOr<octet::JoinFunction> join = octet::HowToJoin(launch, argv);
    if (!join.ok()) {
      octet::PrintError("", join.status());
      return octet::kExitUsage;
    }
    launch.join = *join;
    launch.arguments = absl::StrJoin(argv + std::min(argc, 1), argv + argc, ", ");
  }
  return octet::RunCommandLine(commands, program, argc, argv);
}
