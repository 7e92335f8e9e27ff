// What a launcher of MPI (mpirun, srun) tells a process through the environment.
#ifndef OCTET_RUNTIME_BASE_LAUNCHED_H_
#define OCTET_RUNTIME_BASE_LAUNCHED_H_

#include "absl/functional/function_ref.h"

namespace octet {

struct LaunchedProcess {
  int num_processes = 1;
  int process = 0;  // 0 .. num_processes - 1
  int on_host = 1;  // of them, on this computer
};

// Returns what the launcher's environment variables say: Open MPI's, PMI's (MPICH, Intel MPI),
// MVAPICH's or Slurm's. One process if there are none. `get` returns a variable, or nullptr.
LaunchedProcess LaunchedAs(absl::FunctionRef<const char*(const char* name)> get);

}  // namespace octet

#endif  // OCTET_RUNTIME_BASE_LAUNCHED_H_
