// A World of as many nodes as the launcher has started processes. Tests that need several are
// skipped with one. What concerns exchanges is tested over each transport that there is: on
// emulated GPUs NCCL is a fake.
#include "octet/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/enum_names.h"
#include "octet/graph.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/net/rails/nccl_rails.h"
#include "runtime/net/rails/rail.h"
#include "tests/runtime/net/world_fixture.h"
#include "tests/support/fake_nccl/fake_nccl.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST_F(WorldTest, KnowsItsNodes) {
  Make(1);
  EXPECT_EQ(world().num_nodes(), Last() + 1);
  EXPECT_EQ(world().node_index(), Index());
  EXPECT_EQ(world().num_ranks(), kRanks * (Last() + 1));
  EXPECT_EQ(world().node().num_ranks(), kRanks);
  const auto gathered = world().AllGather(absl::StrCat("of ", Index()));
  ASSERT_OK(gathered.status());
  for (int node = 0; node <= Last(); ++node) {
    EXPECT_EQ((*gathered)[node], absl::StrCat("of ", node));
  }
  const auto large = world().AllGather(std::string(100000, static_cast<char>('a' + Index())));
  ASSERT_OK(large.status());
  for (int node = 0; node <= Last(); ++node) {
    EXPECT_EQ((*large)[node], std::string(100000, static_cast<char>('a' + node)));
  }
}

TEST_F(WorldTest, AnErrorOfOneNodeIsOneOfAll) {
  Make(1);
  EXPECT_OK(world().Together(absl::OkStatus()));
  const absl::Status mine = Index() == Last()
                                ? WithLostNode(absl::UnavailableError("node 7 has died"))
                                : absl::OkStatus();
  const absl::Status together = world().Together(mine);
  EXPECT_THAT(together, StatusIs(absl::StatusCode::kUnavailable,
                                 absl::StrCat("node ", Last(), ": node 7 has died")));
  EXPECT_TRUE(IsLostNode(together));
}

TEST_F(WorldTest, AgreesOnValues) {
  Make(2);
  if (IsSkipped()) return;
  EXPECT_OK(world().Agree("hidden", "7168"));
  const absl::Status status = world().Agree("hidden", absl::StrCat(Index() == Last() ? 64 : 128));
  EXPECT_THAT(
      status,
      StatusIs(absl::StatusCode::kInvalidArgument,
               absl::StrCat("the nodes differ in hidden: 128 on node 0, 64 on node ", Last())));
  ExpectSameEverywhere(status);
  EXPECT_OK(world().Agree("topk", "8"));
}

TEST_F(WorldTest, RefusesNodesThatDiffer) {
  WorldOptions options = OptionsOf(absl::Seconds(20));
  if (Index() == Last()) options.node.num_ranks = kRanks - 1;
  MakeWorld(2, options);
  if (IsSkipped()) return;
  EXPECT_THAT(world_.status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("the nodes differ in the number of ranks: ", kRanks,
                                    " on node 0, ", kRanks - 1, " on node ", Last())));
  ExpectSameEverywhere(world_.status());

  options = OptionsOf(absl::Seconds(Index() == 0 ? 4 : 5));
  MakeWorld(2, options);
  EXPECT_THAT(world_.status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the nodes differ in the timeout: 4s on node 0, 5s on node 1"));
  ExpectSameEverywhere(world_.status());

  options = OptionsOf(absl::Seconds(4));
  if (Index() == Last()) options.node.num_ranks = 99;
  MakeWorld(2, options);
  EXPECT_THAT(world_.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        MatchesRegex(absl::StrCat("node ", Last(), ": 99 .*"))));
  ExpectSameEverywhere(world_.status());
}

TEST_F(WorldTest, WhatWentWrongBeforeEndsAllNodes) {
  WorldOptions options = OptionsOf(absl::Seconds(20));
  if (Index() == Last()) options.prepared = absl::NotFoundError("no such file");
  MakeWorld(1, options);
  EXPECT_THAT(world_.status(), StatusIs(absl::StatusCode::kNotFound,
                                        absl::StrCat("node ", Last(), ": no such file")));
  ExpectSameEverywhere(world_.status());
}

TEST_P(ExchangeTest, ExchangesBytes) {
  Make(1);
  EXPECT_EQ(world().transport(), transport_);
  for (int run = 0; run < 10; ++run) EXPECT_OK(GoodRun(1000 * run, 20));
  EXPECT_EQ(failures_, 0);
}

// The stream goes through many exchanges without a wait on the host.
TEST_P(ExchangeTest, ExchangesFollowEachOtherInTheStream) {
  Make(2);
  if (IsSkipped()) return;
  constexpr size_t kBytes = 64;
  const int nodes = world().num_nodes();
  const int me = world().node_index();
  EXPECT_OK(world().Run([&](Rank& rank) -> absl::Status {
    char* send = send_[rank.rank()].as<char>();
    char* recv = recv_[rank.rank()].as<char>();
    // Every exchange sends on what the one before has brought: round 0 starts at `me`.
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(send, 10 * me + rank.rank(), kBytes, rank.stream()));
    for (int round = 0; round < 6 * nodes; ++round) {
      std::vector<RailPart> parts(nodes);
      parts[(me + 1) % nodes] = {.send = send, .send_bytes = kBytes};
      RailPart& from = parts[(me + nodes - 1) % nodes];
      from.recv = recv;
      from.recv_bytes = kBytes;
      OCTET_RETURN_IF_ERROR(world().rail(rank.rank())->Exchange(rank, parts));
      std::swap(send, recv);
    }
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> received, ToHost<uint8_t>(send, kBytes));
    const std::vector<uint8_t> expected(kBytes, static_cast<uint8_t>(10 * me + rank.rank()));
    return received == expected ? absl::OkStatus() : absl::DataLossError("after whole rounds");
  }));
}

TEST_P(ExchangeTest, RefusesExchangesThatItCannotMake) {
  Make(2);
  if (IsSkipped()) return;
  const int other = (world().node_index() + 1) % world().num_nodes();
  std::vector<RailPart> parts(world().num_nodes());
  EXPECT_THAT(world().node().Run(
                  [&](Rank& rank) { return world().rail(rank.rank())->Exchange(rank, parts); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("outside World::Run")));
  const auto refused = [&](int rail, const std::vector<RailPart>& wrong) {
    absl::Status status;
    EXPECT_OK(world().Run([&](Rank& rank) {
      if (rank.rank() == 0) status = world().rail(rail)->Exchange(rank, wrong);
      return absl::OkStatus();
    }));
    return status;
  };
  EXPECT_THAT(refused(1, parts), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("rank 1's rail on rank 0")));
  EXPECT_THAT(refused(0, std::vector<RailPart>(7)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("7 parts")));
  parts[other].send_bytes = kMaxPart * world().num_nodes() + 1;
  EXPECT_THAT(refused(0, parts),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("Rail::Reserve")));
  parts[other].send_bytes = size_t{1} << 31;
  EXPECT_THAT(refused(0, parts),
              OverNccl() ? StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2147483648"))
                         : StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("2147483647 are the most")));
  EXPECT_OK(GoodRun(5, 3));
}

TEST_P(ExchangeTest, AFailingBodyEndsAllNodes) {
  Make(2);
  if (IsSkipped()) return;
  for (int round = 0; round < 5; ++round) {
    const absl::Time start = absl::Now();
    const absl::Status status = world().Run([&](Rank& rank) -> absl::Status {
      if (round % 2 == 1) OCTET_RETURN_IF_ERROR(Exchange(rank, round).status());
      if (Index() == Last() && rank.rank() == 1) return absl::DataLossError("lost on purpose");
      // The others wait for that rank: in an exchange, or on the host of its node.
      if (Index() == Last()) return rank.Barrier("nothing");
      OCTET_RETURN_IF_ERROR(Exchange(rank, 99).status());
      return rank.Synchronize();
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 absl::StrCat("node ", Last(), ": rank 1: lost on purpose")));
    EXPECT_LT(absl::Now() - start, absl::Seconds(15)) << "the deadline is 20 s";
    ExpectSameEverywhere(status);
    EXPECT_OK(GoodRun(100 * round, 4));
  }
  EXPECT_EQ(failures_, 5);
  EXPECT_THAT(told_, StartsWith(absl::StrCat("node ", Index(), ": ")));
}

TEST_P(ExchangeTest, ASilentRankIsNamed) {
  Make(2, absl::Seconds(2));
  if (IsSkipped()) return;
  for (int round = 0; round < 2; ++round) {
    const absl::Status status = world().Run([&](Rank& rank) -> absl::Status {
      if (Index() == Last() && rank.rank() == 1) return absl::OkStatus();
      OCTET_RETURN_IF_ERROR(Exchange(rank, round).status());
      // What the stream goes on with after the failure posts nothing.
      const std::vector<RailPart> nothing(world().num_nodes());
      for (int i = 0; i < 3; ++i) {
        OCTET_RETURN_IF_ERROR(world().rail(rank.rank())->Exchange(rank, nothing));
      }
      return absl::OkStatus();
    });
    // Any of the nodes that wait for that rank may be the first to give up.
    EXPECT_THAT(
        status,
        StatusIs(
            absl::StatusCode::kDeadlineExceeded,
            MatchesRegex(absl::StrCat(
                "node [0-9]: rank 1: exchange between nodes waited [0-9.]+ s for rank 1 of node ",
                Last(), " .host [^ ]+, process [0-9]+.: exchange [0-9]+, seen [0-9]+(.|\n)*"))));
    ExpectSameEverywhere(status);
    EXPECT_OK(GoodRun(100 * round, 4));
  }
}

TEST_P(ExchangeTest, SizesThatDifferAreNamed) {
  // NCCL may wait for bytes that do not come, up to the deadline.
  Make(2, absl::Seconds(OverNccl() ? 3 : 20));
  if (IsSkipped()) return;
  for (const size_t expected : {50, 150, 15000}) {
    const absl::Status status = world().Run([&](Rank& rank) -> absl::Status {
      std::vector<RailPart> parts(world().num_nodes());
      if (rank.rank() == 1 && Index() == 1) {
        parts[0] = {.send = send_[1].as<void>(), .send_bytes = 100};
      } else if (rank.rank() == 1 && Index() == 0) {
        parts[1].recv = recv_[1].as<void>();
        parts[1].recv_bytes = expected;
      }
      return world().rail(rank.rank())->Exchange(rank, parts);
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 MatchesRegex(absl::StrCat(
                                     "node 0: rank 1: exchange between nodes: node 1 has sent ",
                                     expected < 100 && !OverNccl() ? "more" : "100",
                                     " bytes, node 0 expects ", expected,
                                     OverNccl() ? "" : " .exchange [0-9]+."))));
    ExpectSameEverywhere(status);
    EXPECT_OK(GoodRun(100, 4));
  }
}

TEST_P(ExchangeTest, GraphsAreReplayed) {
  Make(2);
  if (IsSkipped()) return;
  std::vector<std::optional<Graph>> graphs(kRanks);
  std::vector<std::vector<RailPart>> parts(kRanks, std::vector<RailPart>(world().num_nodes()));
  const int me = world().node_index();
  const auto fill = [&](Rank& rank, int launch) -> absl::Status {
    for (int node = 0; node < world().num_nodes(); ++node) {
      if (node == me) continue;
      OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(const_cast<void*>(parts[rank.rank()][node].send),
                                               launch + 10 * me + node, 1000, rank.stream()));
    }
    return absl::OkStatus();
  };
  const auto check = [&](Rank& rank, int launch) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    for (int node = 0; node < world().num_nodes(); ++node) {
      if (node == me) continue;
      OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> received,
                             ToHost<uint8_t>(parts[rank.rank()][node].recv, 1000));
      const auto expected = static_cast<uint8_t>(launch + 10 * node + me);
      if (received != std::vector<uint8_t>(1000, expected)) return absl::DataLossError("differs");
    }
    return absl::OkStatus();
  };
  EXPECT_OK(world().Run([&](Rank& rank) -> absl::Status {
    const int r = rank.rank();
    for (int node = 0; node < world().num_nodes(); ++node) {
      if (node == me) continue;
      const ptrdiff_t offset = 1000 * static_cast<ptrdiff_t>(node);
      parts[r][node] = {send_[r].as<char>() + offset, 1000, recv_[r].as<char>() + offset, 1000};
    }
    OCTET_ASSIGN_OR_RETURN(
        graphs[r], Graph::Capture(rank, [&] { return world().rail(r)->Exchange(rank, parts[r]); }));
    return absl::OkStatus();
  }));
  const auto replay = [&](int launches) {
    return world().Run([&](Rank& rank) -> absl::Status {
      for (int launch = 0; launch < launches; ++launch) {
        OCTET_RETURN_IF_ERROR(fill(rank, launch));
        OCTET_RETURN_IF_ERROR(graphs[rank.rank()]->Launch(rank));
        OCTET_RETURN_IF_ERROR(check(rank, launch));
      }
      return absl::OkStatus();
    });
  };
  EXPECT_OK(replay(10));
  EXPECT_OK(GoodRun(1, 5));  // between launches
  EXPECT_OK(replay(5));
}

TEST_F(WorldTest, RefusesTransportsThatDiffer) {
  if (Index() == Last()) transport_ = RailTransport::kNccl;
  MakeWorld(2, OptionsOf(absl::Seconds(20)));
  if (IsSkipped()) return;
  EXPECT_THAT(world_.status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("the nodes differ in WorldOptions::transport: mpi on node 0, "
                                    "nccl on node ",
                                    Last())));
  ExpectSameEverywhere(world_.status());
}

TEST_F(WorldTest, DifferentCallsBreakTheWorld) {
  Make(2);
  if (IsSkipped()) return;
  const absl::Status first = Index() == 0 ? world().AllGather("a").status()
                                          : world().Run([](Rank&) { return absl::OkStatus(); });
  EXPECT_THAT(first, StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("the nodes make different calls: World::AllGather on node "
                                        "0, World::Run on node 1")));
  EXPECT_THAT(world().Agree("anything", "1"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("has to be started again"), HasSubstr("different calls"))));
}

TEST_F(WorldTest, AProcessThatDoesNotCallIsNamed) {
  WorldOptions options = OptionsOf(absl::Seconds(20));
  options.arrival_timeout = absl::Seconds(1);
  MakeWorld(2, options);
  if (IsSkipped()) return;
  ASSERT_OK(world_.status());
  const absl::Status status = [&] {
    if (Index() == Last()) absl::SleepFor(absl::Seconds(3));
    return world().Run([](Rank&) { return absl::OkStatus(); });
  }();
  EXPECT_THAT(status,
              ::testing::AnyOf(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        AllOf(HasSubstr("has waited 1.0 s in World::Run for node "),
                                              HasSubstr("process "))),
                               // The late one, which has been told meanwhile.
                               StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("has to be started again"))));
}

}  // namespace
}  // namespace octet
