// Which object a failure is about, where there are many, as in a model of many layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/expert_parallel.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/node_failure.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/pinned_memory.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr int kNamedRanks = 2;

class ObjectNamesTest : public NodeTest {
 protected:
  absl::StatusOr<std::unique_ptr<ExpertParallel>> MakeEp(std::string name) {
    EpConfig config;
    config.num_experts = 4;
    config.topk = 2;
    config.hidden = 64;
    config.max_tokens_per_rank = 4;
    return ExpertParallel::Create(*node_, config, {.name = std::move(name)});
  }
  absl::StatusOr<std::unique_ptr<MoeLayer>> MakeLayer(std::string name,
                                                      const MoeLayer* share = nullptr) {
    MoeLayerConfig config;
    config.num_experts = 4;
    config.topk = 2;
    config.hidden = 64;
    config.intermediate = 32;
    config.max_tokens_per_rank = 4;
    OCTET_ASSIGN_OR_RETURN(
        std::unique_ptr<MoeLayer> layer,
        MoeLayer::Create(*node_, config, {.share = share, .name = std::move(name)}));
    OCTET_RETURN_IF_ERROR(layer->Load(RandomWeights(config, false, 1).weights()));
    return layer;
  }

  static absl::Status Call(ExpertParallel& ep, Rank& rank) {
    return ep.Dispatch(rank, {.num_tokens = 0}).status();
  }
  static absl::Status Call(MoeLayer& layer, Rank& rank) {
    return layer.Forward(rank, nullptr, 0, nullptr);
  }

  // A call that rank 1 begins long after rank 0 has given up.
  template <typename Object>
  absl::Status RunLate(Object& object) {
    const auto word = PinnedMemory::Allocate(sizeof(uint32_t));
    OCTET_RETURN_IF_ERROR(word.status());
    auto* stop = word->template as<uint32_t>();
    *stop = 0;
    const size_t before = Noted().size();
    std::thread ends([&] {
      while (Noted().size() == before) absl::SleepFor(absl::Milliseconds(1));
      std::atomic_ref<uint32_t>(*stop).store(1);
    });
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      if (rank.rank() == 1) OCTET_RETURN_IF_GPU_ERROR(LaunchStubborn(stop, rank.stream()));
      return Call(object, rank);
    });
    ends.join();
    return status;
  }

  template <typename Object>
  absl::Status RunOne(Object& object) {
    return node_->Run([&](Rank& rank) { return Call(object, rank); });
  }
  // Each rank comes to another object.
  template <typename Object>
  absl::Status RunTwo(Object& first, Object& second) {
    return node_->Run([&](Rank& rank) { return Call(rank.rank() == 0 ? first : second, rank); });
  }
};

TEST_F(ObjectNamesTest, AnExpiredWaitNamesTheExpertParallel) {
  MakeNode(kNamedRanks, absl::Milliseconds(100));
  if (IsSkipped()) return;
  const auto other = MakeEp("layer 6");
  const auto ep = MakeEp("layer 7 | gate");
  ASSERT_OK(ep.status());
  const absl::Status status = RunLate(**ep);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(MatchesRegex("rank 0: 'layer 7 \\| gate': dispatch-[^\n]* "
                                          "waited [^\n]* for rank 1's (.|\n)*"),
                             HasSubstr("\n'layer 7 | gate': "), Not(HasSubstr("layer 6")))));
  EXPECT_EQ(FailureOf(status).value_or(NodeFailure{}).object, "layer 7 | gate");
  EXPECT_OK(RunOne(**ep));
}

TEST_F(ObjectNamesTest, AnExpiredWaitNamesTheLayerThoughItSharesMemory) {
  MakeNode(kNamedRanks, absl::Milliseconds(100));
  if (IsSkipped()) return;
  const auto first = MakeLayer("layer 0");
  ASSERT_OK(first.status());
  const auto second = MakeLayer("layer 1", first->get());
  ASSERT_OK(second.status());
  EXPECT_THAT(RunLate(**second), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          MatchesRegex("rank 0: 'layer 1': (.|\n)*")));
  EXPECT_THAT(RunLate(**first), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                         MatchesRegex("rank 0: 'layer 0': (.|\n)*")));
  EXPECT_OK(RunOne(**second));
}

TEST_F(ObjectNamesTest, RanksThatComeWithDifferentObjectsAreToldBoth) {
  MakeNode(kNamedRanks);
  if (IsSkipped()) return;
  const auto first = MakeEp("layer 3");
  ASSERT_OK(first.status());
  const auto second = MakeEp("layer 4");
  ASSERT_OK(second.status());
  const absl::Status status = RunTwo(**first, **second);
  EXPECT_THAT(
      status,
      StatusIs(absl::StatusCode::kFailedPrecondition,
               MatchesRegex("rank ([01]): host barrier before dispatch of 'layer [34]': rank [01] "
                            "has come to a call of 'layer [34]'; all ranks make the same calls in "
                            "the same order")));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'layer 3'"), HasSubstr("'layer 4'")));
  EXPECT_OK(RunOne(**first));
  EXPECT_OK(RunOne(**second));
}

TEST_F(ObjectNamesTest, ObjectsWithoutANameAreToldApart) {
  MakeNode(kNamedRanks);
  if (IsSkipped()) return;
  const auto first = MakeEp("");
  ASSERT_OK(first.status());
  const auto second = MakeEp("");
  ASSERT_OK(second.status());
  EXPECT_THAT(RunTwo(**first, **second),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       MatchesRegex("rank [01]: host barrier before dispatch of object [0-9]+ of "
                                    "the node \\(it has no name\\): rank [01] has come to a call "
                                    "of object [0-9]+ of the node (.|\n)*")));
  EXPECT_OK(RunOne(**first));
}

TEST_F(ObjectNamesTest, LayersThatShareMemoryAreToldApart) {
  MakeNode(kNamedRanks);
  if (IsSkipped()) return;
  const auto first = MakeLayer("layer 0");
  ASSERT_OK(first.status());
  const auto second = MakeLayer("layer 1", first->get());
  ASSERT_OK(second.status());
  EXPECT_THAT(RunTwo(**first, **second),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("'layer 0'"), HasSubstr("'layer 1'"))));
  EXPECT_OK(RunOne(**first));
}

TEST_F(ObjectNamesTest, ABarrierThatExpiresNamesTheObject) {
  MakeNode(kNamedRanks, absl::Milliseconds(200));
  if (IsSkipped()) return;
  const auto ep = MakeEp("layer 7");
  ASSERT_OK(ep.status());
  absl::Notification expired;
  EXPECT_THAT(
      node_->Run([&](Rank& rank) {
        absl::Status status;
        if (rank.rank() == 0) {
          status = Call(**ep, rank);
          expired.Notify();
        } else {
          expired.WaitForNotification();
        }
        return status;
      }),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               MatchesRegex("rank 0: host barrier before dispatch of 'layer 7' waited .*")));
}

TEST_F(ObjectNamesTest, WhatIsOutstandingNamesTheObject) {
  MakeNode(kNamedRanks);
  if (IsSkipped()) return;
  const auto ep = MakeEp("layer 7");
  ASSERT_OK(ep.status());
  EXPECT_THAT(
      node_->Run([&](Rank& rank) { return (*ep)->DispatchSend(rank, {.num_tokens = 0}).status(); }),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               MatchesRegex("rank [01]: 'layer 7': the dispatch of call 1 .*not received; call "
                            "DispatchReceive first")));
}

}  // namespace
}  // namespace octet
