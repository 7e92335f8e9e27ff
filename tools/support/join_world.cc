// HowToJoin in the program that is linked to MPI.
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "octet/domain.h"
#include "octet/world.h"
#include "runtime/base/status_macros.h"
#include "tools/support/domain.h"
#include "tools/support/launch.h"
#include "tools/support/watched_node.h"

namespace octet {
namespace {

// Between two collective calls a node may load a model's layer or write a large file, one node
// slower than the others. A node that has died is noticed earlier.
constexpr absl::Duration kArrivalTimeout = absl::Minutes(10);

// Members are destroyed in reverse order: `failures` must exist as long as the node can fail.
struct WatchedWorld {
  std::shared_ptr<WatchedFailures> failures = std::make_shared<WatchedFailures>();
  std::unique_ptr<World> world;
};

absl::StatusOr<std::shared_ptr<Domain>> Join(const Launch& launch, const DomainOptions& options) {
  const auto watched = std::make_shared<WatchedWorld>();
  OCTET_ASSIGN_OR_RETURN(watched->world,
                         World::Create({.node = {.num_ranks = options.num_ranks,
                                                 .timeout = options.timeout,
                                                 .on_failure = OnWatchedFailure(watched->failures)},
                                        .arrival_timeout = kArrivalTimeout,
                                        .transport = options.transport,
                                        .prepared = options.prepared}));
  World& world = *watched->world;
  watched->failures->node = world.node().Share();
  if (world.num_nodes() != launch.num_processes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the launcher has started ", launch.num_processes, " processes, but MPI joins ",
        world.num_nodes(), ": the launcher and the MPI that octet_mpi is linked to must match"));
  }
  OCTET_RETURN_IF_ERROR(world.Agree("the command line", launch.arguments));
  return std::shared_ptr<Domain>(watched, &world);
}

}  // namespace

absl::StatusOr<JoinFunction> HowToJoin(const Launch& /*launch*/, char** /*argv*/) { return Join; }

}  // namespace octet
