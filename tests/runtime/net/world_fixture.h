// A fixture for tests of a World.
#ifndef OCTET_TESTS_RUNTIME_NET_WORLD_FIXTURE_H_
#define OCTET_TESTS_RUNTIME_NET_WORLD_FIXTURE_H_

#include "octet/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

inline constexpr int kRanks = 2;
inline constexpr size_t kMaxPart = 20000;  // some are longer than what MPI sends at once

// The bytes that rank `rank` of one node sends to another in one exchange; the same on all nodes.
inline std::vector<uint8_t> BytesOf(uint64_t seed, int rank, int from, int to) {
  std::seed_seq seeds{static_cast<uint32_t>(seed), static_cast<uint32_t>(rank),
                      static_cast<uint32_t>(from), static_cast<uint32_t>(to)};
  std::mt19937 random(seeds);
  const uint32_t kind = random() % 4;
  const size_t size = kind == 0 ? 0 : random() % (kind == 1 ? 100 : kMaxPart);
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; i += sizeof(uint32_t)) {
    const auto word = static_cast<uint32_t>(random());
    std::memcpy(&bytes[i], &word, std::min(sizeof(word), size - i));
  }
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

}  // namespace octet

#endif  // OCTET_TESTS_RUNTIME_NET_WORLD_FIXTURE_H_
