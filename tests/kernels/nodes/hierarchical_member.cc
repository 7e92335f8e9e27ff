// A process of a World that dispatches and combines until something fails, for
// hierarchical_death_test.py.
//
//   hierarchical_member TIMEOUT_MS STRATEGY ROWS VICTIM CALL STANDS_MS
//
// Rank 0 of node VICTIM stands still before its part of CALL, "dispatch" or "combine", for
// STANDS_MS; 0: until somebody ends the process. VICTIM -1: nobody does, and steps go on.
//
// Prints the lines of tests/support/nodes/world_job.py, and "node N stands in CALL". Exits with 3
// after a failure.
#include <hip/hip_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/enum_names.h"
#include "octet/expert_parallel.h"
#include "octet/world.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tests/support/nodes/several_nodes.h"
#include "tests/support/random_step.h"
#include "tools/workload/step_input.h"

namespace octet {
namespace {

constexpr int kRanksPerNode = 2;

void Say(absl::string_view text) {
  const std::string line = absl::StrCat(text, "\n");
  std::fwrite(line.data(), 1, line.size(), stdout);  // whole lines
  std::fflush(stdout);
}

struct Arguments {
  absl::Duration timeout;
  Strategy strategy = Strategy::kAuto;
  RailRows rows = RailRows::kAuto;
  int chunk_tokens = 0;
  int victim = -1;
  std::string call;
  absl::Duration stands;
};

absl::StatusOr<Arguments> Parse(const std::vector<std::string>& words) {
  Arguments parsed;
  int timeout_ms = 0;
  int stands_ms = 0;
  constexpr size_t kWords = 7;
  if (words.size() != kWords || !absl::SimpleAtoi(words[0], &timeout_ms) ||
      !absl::SimpleAtoi(words[3], &parsed.chunk_tokens) ||
      !absl::SimpleAtoi(words[4], &parsed.victim) || !absl::SimpleAtoi(words[6], &stands_ms)) {
    return absl::InvalidArgumentError(
        "usage: hierarchical_member TIMEOUT_MS STRATEGY ROWS CHUNK_TOKENS VICTIM CALL STANDS_MS");
  }
  OCTET_ASSIGN_OR_RETURN(parsed.strategy, ParseEnum<Strategy>("STRATEGY", words[1]));
  OCTET_ASSIGN_OR_RETURN(parsed.rows, ParseEnum<RailRows>("ROWS", words[2]));
  parsed.timeout = absl::Milliseconds(timeout_ms);
  parsed.call = words[5];
  parsed.stands = stands_ms == 0 ? absl::InfiniteDuration() : absl::Milliseconds(stands_ms);
  return parsed;
}

class Member {
 public:
  Member(World& world, const Arguments& arguments)
      : world_(world), arguments_(arguments), name_(absl::StrCat("node ", world.node_index())) {}

  // Returns when a step has failed and the next one has been tried.
  absl::Status Run();

 private:
  absl::Status Init();
  bool Stands(const Rank& rank, absl::string_view call) const {
    return world_.node_index() == arguments_.victim && rank.rank() == 0 && arguments_.call == call;
  }
  // Enqueues that the rank's stream stands still, if it is to.
  absl::Status EnqueueStand(const Rank& rank, absl::string_view call);
  // A dispatch and a combine in one Run; nothing is compared.
  absl::Status Calls();

  World& world_;
  const Arguments arguments_;
  const std::string name_;
  std::unique_ptr<SeveralNodes> nodes_;
  StepInput input_;
};

absl::Status Member::Init() {
  const EpConfig config = {.num_experts = 4 * world_.num_ranks(),
                           .topk = 3,
                           .hidden = 64,
                           .max_tokens_per_rank = 8,
                           .strategy = arguments_.strategy,
                           .max_blocks = 2};
  OCTET_ASSIGN_OR_RETURN(nodes_, SeveralNodes::Create(JoinedNodes::Join(world_), config,
                                                      {.rows = arguments_.rows,
                                                       .chunk_tokens = arguments_.chunk_tokens}));
  std::mt19937_64 rng(17);  // alike in all processes
  input_ = RandomStep(rng, config, RandomTokens(rng, config, world_.num_ranks()));
  return absl::OkStatus();
}

absl::Status Member::EnqueueStand(const Rank& rank, absl::string_view call) {
  if (!Stands(rank, call)) return absl::OkStatus();
  return OCTET_GPU(hipLaunchHostFunc(
      rank.stream(),
      [](void* data) {
        const auto& member = *static_cast<const Member*>(data);
        Say(absl::StrCat(member.name_, " stands in ", member.arguments_.call));
        absl::SleepFor(member.arguments_.stands);
      },
      this));
}

absl::Status Member::Calls() {
  return nodes_->Run([&](Rank& rank, int global) -> absl::Status {
    OCTET_RETURN_IF_ERROR(EnqueueStand(rank, "dispatch"));
    OCTET_ASSIGN_OR_RETURN(const Received received, nodes_->Dispatch(rank, global));
    OCTET_RETURN_IF_ERROR(EnqueueStand(rank, "combine"));
    return nodes_->Combine(rank, global, received.x);
  });
}

absl::Status Member::Run() {
  OCTET_RETURN_IF_ERROR(Init());
  for (int step = 0; step < 3; ++step) OCTET_RETURN_IF_ERROR(nodes_->Step(input_));
  Say(absl::StrCat(name_, " goes"));
  OCTET_RETURN_IF_ERROR(nodes_->Upload(input_));
  while (true) {
    const absl::Time start = absl::Now();
    const absl::Status status = Calls();
    if (status.ok()) continue;
    Say(absl::StrCat(name_, " failed after ms ", absl::ToInt64Milliseconds(absl::Now() - start),
                     ": ", status.ToString()));
    break;
  }
  Say(absl::StrCat(name_, " then: ", nodes_->Step(input_).ToString()));
  return absl::OkStatus();
}

absl::Status Main(const std::vector<std::string>& words) {
  OCTET_ASSIGN_OR_RETURN(const Arguments arguments, Parse(words));
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<World> world,
                         World::Create({.node = {.num_ranks = kRanksPerNode,
                                                 .timeout = arguments.timeout,
                                                 .on_failure = nullptr}}));
  const std::string name = absl::StrCat("node ", world->node_index());
  Say(absl::StrCat(name, " pid ", getpid()));
  OCTET_RETURN_IF_ERROR(Member(*world, arguments).Run());
  world.reset();
  Say(absl::StrCat(name, " ends"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) {
  const absl::Status status = octet::Main({argv + 1, argv + argc});
  if (status.ok()) return 3;
  octet::Say(status.ToString());
  return 1;
}
