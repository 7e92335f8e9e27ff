#include "tools/support/launch.h"

#include <array>

#include "absl/strings/numbers.h"

namespace octet {
namespace {

// A launcher sets both. The second one of Slurm's belongs to its support of MPI; the first one is
// also set for programs that have nothing to do with each other.
struct Variables {
  const char* size;
  const char* rank;
};
constexpr std::array<Variables, 4> kLaunchers = {{{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                                  {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                                                  {"PMI_SIZE", "PMI_RANK"},
                                                  {"SLURM_STEP_NUM_TASKS", "PMIX_RANK"}}};

}  // namespace

Launch LaunchOf(absl::FunctionRef<const char*(const char* name)> get) {
  for (const Variables& variables : kLaunchers) {
    const char* const size = get(variables.size);
    const char* const rank = get(variables.rank);
    Launch launch;
    if (size == nullptr || rank == nullptr || !absl::SimpleAtoi(size, &launch.num_processes) ||
        !absl::SimpleAtoi(rank, &launch.process)) {
      continue;
    }
    if (launch.process >= 0 && launch.process < launch.num_processes) return launch;
  }
  return {};
}

}  // namespace octet
