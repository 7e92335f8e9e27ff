#include "runtime/base/launched.h"

#include <array>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"

namespace octet {
namespace {

// A launcher sets the first two. The second one of Slurm's belongs to its support of MPI; the first
// one is also set for programs that have nothing to do with each other.
struct Variables {
  const char* size;
  const char* rank;
  const char* size_on_host;
};
constexpr std::array<Variables, 4> kLaunchers = {
    {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
     {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
     {"SLURM_STEP_NUM_TASKS", "PMIX_RANK", "SLURM_NTASKS_PER_NODE"}}};

}  // namespace

LaunchedProcess LaunchedAs(absl::FunctionRef<const char*(const char* name)> get) {
  for (const Variables& variables : kLaunchers) {
    const char* const size = get(variables.size);
    const char* const rank = get(variables.rank);
    LaunchedProcess launched;
    if (size == nullptr || rank == nullptr || !absl::SimpleAtoi(size, &launched.num_processes) ||
        !absl::SimpleAtoi(rank, &launched.process)) {
      continue;
    }
    if (launched.process < 0 || launched.process >= launched.num_processes) continue;
    const char* const on_host = get(variables.size_on_host);
    if (on_host == nullptr || !absl::SimpleAtoi(on_host, &launched.on_host) ||
        launched.on_host < 1 || launched.on_host > launched.num_processes) {
      launched.on_host = 1;
    }
    return launched;
  }
  return {};
}

}  // namespace octet
