#include "tools/support/watched_node.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/node/schedule.h"
#include "tools/support/exit_code.h"

namespace octet {
namespace {

constexpr absl::Duration kTellAfter = absl::Seconds(5);
constexpr int kGraceTimeouts = 2;
constexpr absl::Duration kGraceExtra = absl::Seconds(20);
constexpr absl::Duration kPoll = absl::Milliseconds(50);

// Members are destroyed in reverse order: `failures` must exist as long as `node` can fail.
struct WatchedNode {
  std::shared_ptr<WatchedFailures> failures = std::make_shared<WatchedFailures>();
  std::unique_ptr<Node> node;
};

// Writes to standard error, which has no buffer whose lock a stuck thread could hold.
void Say(absl::string_view text) {
  std::fputs(absl::StrCat("octet: ", text, "\n").c_str(), stderr);
}

// Returns when the Run that was in progress has returned.
void Watch(const Node& node, uint64_t completed_runs, const std::string& failure) {
  const auto start = std::chrono::steady_clock::now();
  const absl::Duration grace = FailureGrace(node.timeout());
  bool told = false;
  while (node.completed_runs() == completed_runs || node.stuck()) {
    const absl::Duration passed = absl::FromChrono(std::chrono::steady_clock::now() - start);
    if (!told && passed > kTellAfter) {
      told = true;
      Say(failure);
      Say(absl::StrCat("a rank's thread or stream has not returned since; exit with code ",
                       kExitDeadline, " in ", WaitText(grace - passed), " unless it returns"));
    }
    if (passed > grace) {
      Say(absl::StrCat("a rank's thread or stream is stuck ", WaitText(passed),
                       " after the failure"));
      _exit(kExitDeadline);
    }
    absl::SleepFor(kPoll);
  }
}

void StartWatch(const std::shared_ptr<Node>& node, const absl::Status& failure) {
  const absl::Status sentence = WithMessage(failure, FirstLine(failure));
  const std::string text(WithSchedule(sentence).message());
  try {
    std::thread([node, text, completed = node->completed_runs()] {
      Watch(*node, completed, text);
    }).detach();
  } catch (const std::system_error&) {
    PrintFailure(failure);
  }
}

}  // namespace

absl::Duration FailureGrace(absl::Duration timeout) {
  return kGraceTimeouts * timeout + kGraceExtra;
}

FailureCallback OnWatchedFailure(const std::shared_ptr<WatchedFailures>& watched) {
  return [weak = std::weak_ptr(watched)](const absl::Status& failure) {
    const std::shared_ptr<WatchedFailures> failures = weak.lock();
    // Nothing can be watched before the node is there, nor when it is about to go.
    if (failures == nullptr || failures->node == nullptr) return PrintFailure(failure);
    StartWatch(failures->node, failure);
  };
}

absl::StatusOr<std::shared_ptr<Node>> CreateWatchedNode(NodeOptions options) {
  const auto watched = std::make_shared<WatchedNode>();
  options.on_failure = OnWatchedFailure(watched->failures);
  OCTET_ASSIGN_OR_RETURN(watched->node, Node::Create(options));
  watched->failures->node = watched->node->Share();
  return std::shared_ptr<Node>(watched, watched->node.get());
}

}  // namespace octet
