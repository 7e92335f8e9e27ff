// How this process was started: alone, or as one of several by a launcher of MPI (mpirun, srun).
#ifndef OCTET_TOOLS_SUPPORT_LAUNCH_H_
#define OCTET_TOOLS_SUPPORT_LAUNCH_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octet {

class Domain;          // octet/domain.h
struct DomainOptions;  // tools/support/domain.h
struct Launch;

// Joins the processes of a launch.
using JoinFunction = absl::StatusOr<std::shared_ptr<Domain>> (*)(const Launch& launch,
                                                                 const DomainOptions& options);

struct Launch {
  int num_processes = 1;
  int process = 0;              // 0 .. num_processes - 1
  std::string arguments;        // of the command line, for comparison: with ", " between them
  JoinFunction join = nullptr;  // with several processes

  bool several() const { return num_processes > 1; }
  bool first() const { return process == 0; }
};

// Returns what the environment says (runtime/base/launched.h). `get` returns a variable, or
// nullptr.
Launch LaunchOf(absl::FunctionRef<const char*(const char* name)> get);

// Returns how a program joins the processes of `launch`, which are several. `octet` is not linked
// to MPI: there, octet_mpi, which lies beside it, is executed in place of this process, and the
// function only returns if that is impossible. Each program is linked to one implementation:
// no_world.cc or join_world.cc.
absl::StatusOr<JoinFunction> HowToJoin(const Launch& launch, char** argv);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_LAUNCH_H_
