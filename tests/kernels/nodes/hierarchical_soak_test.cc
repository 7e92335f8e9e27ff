// Random shapes, calls and failures over the nodes of a World, for as long as OCTET_SOAK_MS says:
// several ExpertParallels at once take turns on the same rails. Every process checks its own ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/enum_names.h"
#include "octet/expert_parallel.h"
#include "octet/world.h"
#include "runtime/node/node_client.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tests/support/nodes/several_nodes.h"
#include "tests/support/random_step.h"
#include "tools/workload/step_input.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// How long: every World ends a whole round.
absl::Duration SoakTime() {
  constexpr int kDefaultMs = 4000;
  int milliseconds = kDefaultMs;
  if (const char* const text = std::getenv("OCTET_SOAK_MS"); text != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &milliseconds)) << "OCTET_SOAK_MS is " << text;
  }
  return absl::Milliseconds(milliseconds);
}

// All numbers are drawn alike in all processes.
class HierarchicalSoakTest : public ::testing::Test {
 protected:
  struct Member {
    EpConfig config;
    std::unique_ptr<SeveralNodes> nodes;
  };

  int Draw(int least, int most) {
    return least + static_cast<int>(rng_() % static_cast<uint64_t>(most - least + 1));
  }

  void Join(uint64_t seed) {
    rng_.seed(seed);
    members_.clear();
    world_.reset();
    shape_.ranks_per_node = Draw(1, 2);
    auto world = World::Create({.node = {.num_ranks = shape_.ranks_per_node,
                                         .timeout = absl::Seconds(60),
                                         .on_failure = nullptr}});
    ASSERT_OK(world.status());
    world_ = *std::move(world);
    shape_.num_nodes = world_->num_nodes();
  }

  EpConfig DrawConfig() {
    constexpr Strategy kStrategies[] = {Strategy::kLowLatency, Strategy::kHighThroughput,
                                        Strategy::kDirect, Strategy::kAuto};
    EpConfig config;
    config.strategy = kStrategies[Draw(0, 3)];
    config.num_experts = ranks() * Draw(1, 5);
    config.topk = Draw(1, std::min(9, config.num_experts));
    config.hidden = 32 * Draw(1, 40);
    config.max_tokens_per_rank = Draw(1, 40);
    config.max_blocks = 2;
    config.scale_group = 32;
    config.dtype = Draw(0, 1) == 0 ? DType::kBFloat16 : DType::kFloat16;
    if (config.strategy == Strategy::kHighThroughput && Draw(0, 1) == 0) {
      config.dispatch_format = DispatchFormat::kFp8;
    }
    return config;
  }

  void AddMember() {
    CombineOrder intranode_order = CombineOrder::kAuto;
    Member member;
    member.config = DrawConfig();
    if (member.config.strategy != Strategy::kDirect && Draw(0, 1) == 0) {
      intranode_order = CombineOrder::kFlat;
    }
    const RailRows rows = Draw(0, 1) == 0 ? RailRows::kBlocks : RailRows::kCounted;
    const int chunk = Draw(0, 1) == 0 ? 0 : Draw(2, 40);
    auto nodes = SeveralNodes::Create(JoinedNodes::Join(*world_, intranode_order), member.config,
                                      {.rows = rows, .chunk_tokens = chunk});
    ASSERT_OK(nodes.status());
    member.nodes = *std::move(nodes);
    members_.push_back(std::move(member));
  }

  StepInput DrawStep(const Member& member, double drop) {
    StepInput input =
        RandomStep(rng_, member.config, RandomTokens(rng_, member.config, ranks()), drop);
    SendRandomBytes(rng_, member.config, input);
    return input;
  }

  // A dispatch in which a rank names an expert that there is none of.
  void WrongChoice(const Member& member) {
    const int wrong = Draw(0, ranks() - 1);
    std::vector<int> tokens = RandomTokens(rng_, member.config, ranks());
    tokens[static_cast<size_t>(wrong)] = member.config.max_tokens_per_rank;
    StepInput input = RandomStep(rng_, member.config, tokens);
    SendRandomBytes(rng_, member.config, input);
    std::vector<int32_t>& ids = input.ranks[static_cast<size_t>(wrong)].topk_idx;
    ids[rng_() % ids.size()] = member.config.num_experts + Draw(0, 3);
    ASSERT_OK(member.nodes->Upload(input));
    const absl::Status status = member.nodes->Run(
        [&](Rank& rank, int global) { return member.nodes->Dispatch(rank, global).status(); });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr(absl::StrCat("node ", NodeOf(wrong), ": ")),
                                       HasSubstr(absl::StrCat("rank ", LocalOf(wrong))),
                                       HasSubstr("topk_idx"))));
  }

  // A dispatch that a rank leaves out.
  void LeftOut(const Member& member) {
    const int absent = Draw(0, ranks() - 1);
    ASSERT_OK(member.nodes->Upload(DrawStep(member, 0)));
    const absl::Status status = member.nodes->Run([&](Rank& rank, int global) -> absl::Status {
      if (global == absent) return absl::DataLossError("left out");
      return member.nodes->Dispatch(rank, global).status();
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 AllOf(HasSubstr(absl::StrCat("node ", NodeOf(absent), ": ")),
                                       HasSubstr("left out"))));
  }

  // A node is told to end at any time of a dispatch and a combine.
  void ToldToEnd(const Member& member) {
    const int node = Draw(0, shape_.num_nodes - 1);
    const absl::Duration late = absl::Microseconds(Draw(0, 3000));
    ASSERT_OK(member.nodes->Upload(DrawStep(member, 0)));
    const absl::Status status = member.nodes->Run([&](Rank& rank, int global) -> absl::Status {
      absl::StatusOr<Received> received = member.nodes->Dispatch(rank, global);
      if (received.ok()) absl::SleepFor(late);
      if (global == node * shape_.ranks_per_node) {
        NodeClient::Release(rank.node(), absl::ResourceExhaustedError("told to end"));
      }
      return received.status();
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("told to end")));
  }

  void Fail(const Member& member) {
    switch (Draw(0, 2)) {
      case 0:
        return WrongChoice(member);
      case 1:
        return LeftOut(member);
      default:
        return ToldToEnd(member);
    }
  }

  // Some steps of one of the ExpertParallels, perhaps after a failure.
  void Turn() {
    const Member& member = members_[rng_() % members_.size()];
    if (Draw(0, 3) == 0) {
      Fail(member);
      if (HasFailure()) return;
      ++failures_;
    }
    for (int step = Draw(1, 3); step > 0; --step) {
      ASSERT_OK(member.nodes->Step(DrawStep(member, Draw(0, 2) == 0 ? 0.4 : 0)));
      ++steps_;
    }
  }

  int NodeOf(int global) const { return global / shape_.ranks_per_node; }
  int LocalOf(int global) const { return global % shape_.ranks_per_node; }
  int ranks() const { return shape_.num_nodes * shape_.ranks_per_node; }
  // Whether node 0 has time left.
  bool GoesOn(absl::Time end) {
    const auto answers = world_->AllGather(absl::Now() < end ? "on" : "over");
    EXPECT_OK(answers.status());
    return answers.ok() && answers->front() == "on";
  }

  std::mt19937_64 rng_;
  std::unique_ptr<World> world_;
  NodesOfRanks shape_;
  std::vector<Member> members_;  // gone before the World
  int worlds_ = 0;
  int steps_ = 0;
  int failures_ = 0;
};

TEST_F(HierarchicalSoakTest, RandomShapesCallsAndFailures) {
  const absl::Time end = absl::Now() + SoakTime();
  bool goes_on = true;
  for (uint64_t seed = 1; goes_on; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Join(seed);
    ASSERT_FALSE(HasFatalFailure());
    ++worlds_;
    for (int member = Draw(1, 3); member > 0; --member) {
      AddMember();
      ASSERT_FALSE(HasFatalFailure());
    }
    for (int turn = 0; turn < 8; ++turn) {
      Turn();
      ASSERT_FALSE(HasFailure());
    }
    goes_on = GoesOn(end);
  }
  std::printf("%d nodes: %d Worlds, %d steps, %d failures\n", shape_.num_nodes, worlds_, steps_,
              failures_);
}

}  // namespace
}  // namespace octet
