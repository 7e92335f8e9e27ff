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
#include "tests/support/fake_nccl/fake_nccl.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr int kRanks = 2;
constexpr size_t kMaxPart = 20000;  // some are longer than what MPI sends at once

// The bytes that rank `rank` of one node sends to another in one exchange; the same on all nodes.
std::vector<uint8_t> BytesOf(uint64_t seed, int rank, int from, int to) {
  std::seed_seq seeds{static_cast<uint32_t>(seed), static_cast<uint32_t>(rank),
                      static_cast<uint32_t>(from), static_cast<uint32_t>(to)};
  std::mt19937 random(seeds);
  const uint32_t kind = random() % 4;
  const size_t size = kind == 0 ? 0 : random() % (kind == 1 ? 100 : kMaxPart);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

class WorldTest : public ::testing::Test {
 protected:
  // Before anything looks for NCCL.
  static void SetUpTestSuite() { LoadFakeNccl(); }

  // Skips the test with fewer processes: `if (IsSkipped()) return;`.
  void Make(int least_nodes, absl::Duration timeout = absl::Seconds(20)) {
    MakeWorld(least_nodes, OptionsOf(timeout));
    if (IsSkipped()) return;
    ASSERT_OK(world_.status());
    const size_t room = kMaxPart * (*world_)->num_nodes();
    for (int rank = 0; rank < kRanks; ++rank) {
      for (DeviceMemory* memory : {&send_[rank], &recv_[rank]}) {
        hipSetDevice((*world_)->node().topology().gpus[rank].device);
        absl::StatusOr<DeviceMemory> made = DeviceMemory::Allocate(room);
        ASSERT_OK(made.status());
        *memory = *std::move(made);
      }
      ASSERT_OK((*world_)->rail(rank)->Reserve(room, room));
    }
  }
  // Ends the World. The fake of NCCL cannot see that no graph is left.
  void EndAfterGraphs() {
    if (!LoadFakeNccl()) return;
    SetNcclFaults({.graphs_are_alive = false});
    world_ = absl::UnknownError("the World has ended");
    SetNcclFaults({});
  }
  void MakeWorld(int least_nodes, const WorldOptions& options) {
    int nodes = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &nodes);
    if (nodes < least_nodes) GTEST_SKIP() << least_nodes << " nodes of " << nodes;
    world_ = World::Create(options);
  }
  WorldOptions OptionsOf(absl::Duration timeout) {
    return {.node = {.num_ranks = kRanks,
                     .timeout = timeout,
                     .on_failure =
                         [this](const absl::Status& failure) {
                           told_ = std::string(failure.message());
                           ++failures_;
                         }},
            .arrival_timeout = absl::Seconds(30),
            .transport = transport_};
  }
  // Of this process, before there is a World.
  static int Index() {
    int index = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &index);
    return index;
  }
  static int Last() {
    int nodes = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &nodes);
    return nodes - 1;
  }

  World& world() { return **world_; }

  // Enqueues an exchange of BytesOf(seed), in two parts for each node with an odd seed, and returns
  // its parts.
  absl::StatusOr<std::vector<RailPart>> Exchange(Rank& rank, uint64_t seed) {
    const int r = rank.rank();
    const size_t nodes = world().num_nodes();
    std::vector<RailPart> parts(nodes * (1 + seed % 2));
    char* send = send_[r].as<char>();
    char* recv = recv_[r].as<char>();
    std::vector<std::vector<uint8_t>> bytes;
    for (int node = 0; node < world().num_nodes(); ++node) {
      if (node == world().node_index()) continue;
      bytes.push_back(BytesOf(seed, r, world().node_index(), node));
      const std::vector<uint8_t>& sent = bytes.back();
      parts[node] = {send, sent.size(), recv, BytesOf(seed, r, node, world().node_index()).size()};
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpyAsync(send, sent.data(), sent.size(), hipMemcpyHostToDevice, rank.stream()));
      send += parts[node].send_bytes;
      recv += parts[node].recv_bytes;
      if (parts.size() > nodes) parts[nodes + node] = CutOff(&parts[node]);
    }
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(world().rail(r)->Exchange(rank, parts));
    return parts;
  }
  // Makes `part` shorter and returns the rest, which is received in front of it.
  static RailPart CutOff(RailPart* part) {
    const size_t sent = part->send_bytes / 3;
    const size_t received = part->recv_bytes / 3;
    const RailPart rest = {static_cast<const char*>(part->send) + sent, part->send_bytes - sent,
                           part->recv, part->recv_bytes - received};
    *part = {part->send, sent, static_cast<char*>(part->recv) + rest.recv_bytes, received};
    return rest;
  }
  // Synchronizes and compares what has been received.
  absl::Status Check(Rank& rank, uint64_t seed, const std::vector<RailPart>& parts) {
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    for (int node = 0; node < world().num_nodes(); ++node) {
      if (node == world().node_index()) continue;
      const std::vector<uint8_t> expected = BytesOf(seed, rank.rank(), node, world().node_index());
      std::vector<uint8_t> received;
      for (size_t i = node; i < parts.size(); i += world().num_nodes()) {
        OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> part,
                               ToHost<uint8_t>(parts[i].recv, parts[i].recv_bytes));
        received.insert(received.end(), part.begin(), part.end());
      }
      if (received != expected) {
        return absl::DataLossError(
            absl::StrCat("seed ", seed, ": ", expected.size(), " bytes of node ", node, " differ"));
      }
    }
    return absl::OkStatus();
  }
  absl::Status GoodRun(uint64_t first_seed, int exchanges) {
    return world().Run([&](Rank& rank) -> absl::Status {
      for (int i = 0; i < exchanges; ++i) {
        OCTET_ASSIGN_OR_RETURN(const std::vector<RailPart> parts, Exchange(rank, first_seed + i));
        OCTET_RETURN_IF_ERROR(Check(rank, first_seed + i, parts));
      }
      return absl::OkStatus();
    });
  }
  // All processes have the same error: compared through MPI itself.
  static void ExpectSameEverywhere(const absl::Status& status) {
    std::string text = status.ToString();
    text.resize(4096);
    std::string first = text;
    MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    EXPECT_EQ(text, first);
  }

  RailTransport transport_ = RailTransport::kMpi;
  absl::StatusOr<std::unique_ptr<World>> world_ = absl::UnknownError("no World has been made");
  DeviceMemory send_[kRanks];
  DeviceMemory recv_[kRanks];
  std::atomic<int> failures_{0};
  std::string told_;  // about the last one
};

class ExchangeTest : public WorldTest, public ::testing::WithParamInterface<RailTransport> {
 protected:
  void SetUp() override {
    transport_ = GetParam();
    if (OverNccl() && !NcclVersion().ok()) GTEST_SKIP() << NcclVersion().status();
  }
  void TearDown() override {
    if (OverNccl()) EndAfterGraphs();
  }
  static bool OverNccl() { return GetParam() == RailTransport::kNccl; }
};

INSTANTIATE_TEST_SUITE_P(, ExchangeTest,
                         ::testing::Values(RailTransport::kMpi, RailTransport::kNccl),
                         [](const ::testing::TestParamInfo<RailTransport>& info) {
                           return std::string(EnumName(info.param));
                         });

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

// What the fake of NCCL does wrong.
class NcclTest : public WorldTest {
 protected:
  void SetUp() override {
    transport_ = RailTransport::kNccl;
    if (!LoadFakeNccl()) GTEST_SKIP() << "there is no fake of NCCL";
  }
  void TearDown() override { EndAfterGraphs(); }
  // One process has the fault.
  static void SetFaultsOfLast(const fake::NcclFaults& faults) {
    if (Index() == Last()) SetNcclFaults(faults);
  }
};

TEST_F(NcclTest, IsNotTakenUnasked) {
  transport_ = RailTransport::kAuto;
  MakeWorld(1, OptionsOf(absl::Seconds(20)));
  ASSERT_OK(world_.status());
  EXPECT_EQ(world().transport(), RailTransport::kMpi);
}

TEST_F(NcclTest, RefusesVersionsThatDiffer) {
  SetFaultsOfLast({.version = 21903});
  MakeWorld(2, OptionsOf(absl::Seconds(20)));
  if (IsSkipped()) return;
  EXPECT_THAT(world_.status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("the nodes differ in the version of NCCL: 2.28.9 on node 0, "
                                    "2.19.3 on node ",
                                    Last())));
  ExpectSameEverywhere(world_.status());
}

TEST_F(NcclTest, ACommunicatorThatDoesNotComeUpIsNamed) {
  for (const bool hangs : {false, true}) {
    WorldOptions options = OptionsOf(absl::Seconds(20));
    options.arrival_timeout = absl::Seconds(3);
    SetFaultsOfLast({.init_fails = !hangs, .init_hangs = hangs});
    MakeWorld(2, options);
    if (IsSkipped()) return;
    // Those that wait for the one may be the first to give up.
    EXPECT_THAT(world_.status(),
                StatusIs(absl::StatusCode::kUnavailable,
                         MatchesRegex("node [0-9]: rank 0: nccl: ncclCommInitRankConfig.*")));
    ExpectSameEverywhere(world_.status());
    SetNcclFaults({});
    Make(2);
    EXPECT_OK(GoodRun(1, 3));
    world_ = absl::UnknownError("the World has ended");
  }
}

// A kernel of the library does not end on one node, which cannot use its GPU any more.
TEST_F(NcclTest, AKernelThatOutlivesItsAbortIsLeftBehind) {
  WorldOptions options = OptionsOf(absl::Seconds(1));
  options.arrival_timeout = absl::Seconds(3);
  if (Index() == 0) SetNcclFaults({.never_ends = true});
  const absl::Time start = absl::Now();
  MakeWorld(2, options);
  if (IsSkipped()) return;
  EXPECT_THAT(
      world_.status(),
      StatusIs(absl::StatusCode::kUnavailable,
               MatchesRegex("node 0: rank 0: nccl: .*; a kernel of nccl has not ended either "
                            "5.0 s after ncclCommAbort: .*")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(40));
  ExpectSameEverywhere(world_.status());
  SetNcclFaults({});
  Make(2);
  EXPECT_OK(GoodRun(1, 3));
}

// The library's call does not return on any node.
TEST_F(NcclTest, ACallThatDoesNotReturnIsLeftBehind) {
  WorldOptions options = OptionsOf(absl::Seconds(20));
  options.arrival_timeout = absl::Seconds(3);
  SetFaultsOfLast({.connect_hangs = true});
  const absl::Time start = absl::Now();
  MakeWorld(2, options);
  if (IsSkipped()) return;
  EXPECT_THAT(world_.status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       MatchesRegex("node [0-9]: rank 0: nccl: ncclGroupEnd has not ended.*")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
  ExpectSameEverywhere(world_.status());
  SetNcclFaults({});
  Make(2);
  EXPECT_OK(GoodRun(1, 3));
}

TEST_F(NcclTest, AnExchangeThatDoesNotEndIsAborted) {
  Make(2, absl::Seconds(2));
  if (IsSkipped()) return;
  for (int round = 0; round < 2; ++round) {
    SetFaultsOfLast({.never_sends = true});
    const absl::Time start = absl::Now();
    const absl::Status status = world().Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(Exchange(rank, 7).status());
      return rank.Synchronize();
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 HasSubstr("exchange between nodes waited ")));
    EXPECT_LT(absl::Now() - start, absl::Seconds(15));
    ExpectSameEverywhere(status);
    SetNcclFaults({});
    EXPECT_OK(GoodRun(100 * round, 4));
  }
}

TEST_F(NcclTest, AnErrorOfTheLibraryEndsTheRunOnAllNodes) {
  Make(2);
  if (IsSkipped()) return;
  SetFaultsOfLast({.never_sends = true, .reports_error = true});
  const absl::Time start = absl::Now();
  const absl::Status status = world().Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(Exchange(rank, 7).status());
    return rank.Synchronize();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                               HasSubstr("remote process exited or there was a network error")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(15)) << "the deadline is 20 s";
  ExpectSameEverywhere(status);
  SetNcclFaults({});
  EXPECT_OK(GoodRun(1, 4));
}

TEST_F(NcclTest, AGraphIsVoidAfterAFailedRun) {
  Make(2);
  if (IsSkipped()) return;
  std::vector<std::optional<Graph>> graphs(kRanks);
  const auto capture = [&] {
    return world().Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(graphs[rank.rank()], Graph::Capture(rank, [&] {
                               return world()
                                   .rail(rank.rank())
                                   ->Exchange(rank, std::vector<RailPart>(world().num_nodes()));
                             }));
      return absl::OkStatus();
    });
  };
  const auto launch = [&] {
    return world().Run([&](Rank& rank) { return graphs[rank.rank()]->Launch(rank); });
  };
  EXPECT_OK(capture());
  EXPECT_OK(launch());
  // The graphs keep the library from freeing the communicator, for which nobody waits.
  EXPECT_THAT(world().Run([&](Rank& /*rank*/) -> absl::Status {
    return Index() == 0 ? absl::DataLossError("on purpose") : absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("on purpose")));
  EXPECT_OK(GoodRun(1, 4));
  EXPECT_THAT(launch(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("a graph cannot be launched without its "
                                                 "communicator"),
                                       HasSubstr("capture it again"))));
  EXPECT_OK(capture());
  EXPECT_OK(launch());
}

TEST_F(NcclTest, RailsThatDoNotComeUpAgainBreakTheWorld) {
  WorldOptions options = OptionsOf(absl::Seconds(20));
  options.arrival_timeout = absl::Seconds(3);
  MakeWorld(2, options);
  if (IsSkipped()) return;
  ASSERT_OK(world_.status());
  SetFaultsOfLast({.init_fails = true});
  EXPECT_THAT(world().Run([&](Rank& /*rank*/) -> absl::Status {
    return Index() == 0 ? absl::DataLossError("on purpose") : absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("the rails have not come up again after"),
                             HasSubstr("on purpose"))));
  EXPECT_THAT(world().Agree("anything", "1"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                       HasSubstr("has to be started again")));
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
