// A node for a test, and matchers for Status.
#ifndef OCTET_TESTS_SUPPORT_NODE_NODE_FIXTURE_H_
#define OCTET_TESTS_SUPPORT_NODE_NODE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "octet/topology.h"
#include "runtime/base/mutex.h"

namespace octet {

inline ::testing::AssertionResult IsOk(const absl::Status& status) {
  return status.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << status;
}
#define ASSERT_OK(expr) ASSERT_TRUE(::octet::IsOk(expr))
#define EXPECT_OK(expr) EXPECT_TRUE(::octet::IsOk(expr))

// A Status of this code whose message matches.
MATCHER_P2(StatusIs, code, message, "") {
  *result_listener << arg;
  return arg.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(arg.message()), result_listener);
}

class NodeTest : public ::testing::Test {
 protected:
  static int NumGpus() {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    return topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
  }

  // Skips the test where there are fewer GPUs: `if (IsSkipped()) return;`.
  void MakeNode(int num_ranks, absl::Duration timeout = absl::Seconds(10)) {
    if (num_ranks > NumGpus()) GTEST_SKIP() << num_ranks << " ranks on " << NumGpus() << " GPUs";
    absl::StatusOr<std::unique_ptr<Node>> node =
        Node::Create({.num_ranks = num_ranks,
                      .timeout = timeout,
                      .on_failure = [this](const absl::Status& failure) { Note(failure); }});
    ASSERT_OK(node.status());
    node_ = *std::move(node);
  }

  // Returns the failures that NodeOptions::on_failure was called with. They do not go to stderr,
  // since most of them are expected.
  std::vector<absl::Status> Noted() const {
    MutexLock lock(&noted_mutex_);
    return noted_;
  }

 private:
  void Note(const absl::Status& failure) {
    MutexLock lock(&noted_mutex_);
    noted_.push_back(failure);
  }

  mutable Mutex noted_mutex_;
  std::vector<absl::Status> noted_ ABSL_GUARDED_BY(noted_mutex_);

 protected:
  std::unique_ptr<Node> node_;  // calls Note until it is gone
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NODE_NODE_FIXTURE_H_
