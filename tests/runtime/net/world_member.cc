// A process of a World that exchanges until something fails. world_death_test.py kills it.
//
//   world_member TIMEOUT_MS TRANSPORT
//
// Prints "node N pid P", then "node N step 1000" and so on, then the errors of the Run that failed
// and of the one after it. Exits with 3 after a failure.
#include <hip/hip_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "octet/world.h"
#include "runtime/net/rail.h"
#include "tests/support/fake_nccl.h"

namespace octet {
namespace {

void Say(absl::string_view text) {
  const std::string line = absl::StrCat(text, "\n");
  std::fwrite(line.data(), 1, line.size(), stdout);  // whole lines
  std::fflush(stdout);
}

absl::Status Step(World& world) {
  return world.Run([&](Rank& rank) {
    return world.rail(rank.rank()).Exchange(rank, std::vector<RailPart>(world.num_nodes()));
  });
}

int Main(int timeout_ms, RailTransport transport) {
  if (transport == RailTransport::kNccl) LoadFakeNccl();
  absl::StatusOr<std::unique_ptr<World>> world = World::Create(
      {.node = {.num_ranks = 2, .timeout = absl::Milliseconds(timeout_ms), .on_failure = nullptr},
       .transport = transport});
  if (!world.ok()) {
    Say(world.status().ToString());
    return 1;
  }
  const std::string name = absl::StrCat("node ", (*world)->node_index());
  Say(absl::StrCat(name, " pid ", getpid()));
  absl::Status status;
  for (int step = 1; status.ok(); ++step) {
    const absl::Time start = absl::Now();
    status = Step(**world);
    if (step == 20) Say(absl::StrCat(name, " goes"));
    if (!status.ok()) {
      Say(absl::StrCat(name, " failed after ms ", absl::ToInt64Milliseconds(absl::Now() - start),
                       ": ", status.ToString()));
    }
  }
  Say(absl::StrCat(name, " then: ", Step(**world).ToString()));
  world->reset();
  Say(absl::StrCat(name, " ends"));
  return 3;
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int timeout_ms = 0;
  const auto transport = octet::ParseEnum<octet::RailTransport>("TRANSPORT", argv[2]);
  if (!transport.ok() || !absl::SimpleAtoi(argv[1], &timeout_ms)) return 2;
  return octet::Main(timeout_ms, *transport);
}
