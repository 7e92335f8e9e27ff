// The contract of bulk_copy.h and of the ring made of it, the same on every platform.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "octet/topology.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/platform/bulk_copy_kernels.h"

namespace octet {
namespace {

class BulkCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto topology = DiscoverTopology();
    if (!topology.ok()) GTEST_SKIP() << topology.status();
    const int ranks = topology->CheckRanks(2).ok() ? 2 : 1;
    auto node = Node::Create({.num_ranks = ranks});
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *std::move(node);
    wave_size_ = topology->gpus[0].wave_size;
  }

  std::unique_ptr<Node> node_;
  int wave_size_ = 0;
};

struct RingCase {
  int slots;
  int rows;
  uint32_t row_bytes;
  int blocks;
  int waves;
};

// Rank 0 moves rows of its own into its own and into the last rank's memory.
TEST_F(BulkCopyTest, ARingMovesEveryRowToAllItsDestinations) {
  for (const RingCase& c :
       {RingCase{2, 1, 16, 1, 1}, RingCase{2, 9, 1024, 2, 2}, RingCase{3, 40, 2000, 3, 2},
        RingCase{4, 64, 512, 1, 4}, RingCase{3, 7, 14'336, 2, 1}, RingCase{3, 3, 16, 4, 3}}) {
    SCOPED_TRACE(absl::StrCat(c.slots, " slots, ", c.rows, " rows of ", c.row_bytes, " bytes"));
    const size_t bytes = static_cast<size_t>(c.rows) * c.row_bytes;
    auto heap = SymmetricHeap::Create(*node_, 3 * bytes + 4096);
    ASSERT_TRUE(heap.ok()) << heap.status();
    const auto from = (*heap)->Allocate<uint32_t>(bytes / 4);
    const auto to = (*heap)->Allocate<uint32_t>(bytes / 4);
    const auto done = (*heap)->Allocate<uint32_t>(static_cast<size_t>(c.rows));
    ASSERT_TRUE(from.ok() && to.ok() && done.ok());
    std::vector<uint32_t> words(bytes / 4);
    std::iota(words.begin(), words.end(), 1U);
    std::vector<uint32_t> near(words.size());
    std::vector<uint32_t> far(words.size());
    std::vector<uint32_t> flags(static_cast<size_t>(c.rows));
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      if (rank.rank() != 0) return absl::OkStatus();
      const device::PeerBases peers = (*heap)->peers(0);
      const BulkCopyParams params = {.from = from->Mine(peers),
                                     .to = to->Mine(peers),
                                     .also = to->On(peers, rank.num_ranks() - 1),
                                     .rows = c.rows,
                                     .row_bytes = c.row_bytes,
                                     .done = done->Mine(peers)};
      OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(from->Mine(peers), words.data(), bytes,
                                               hipMemcpyHostToDevice, rank.stream()));
      OCTET_RETURN_IF_GPU_ERROR(
          LaunchBulkCopy(params, c.slots, c.blocks, c.waves, wave_size_, rank.stream()));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(near.data(), params.to, bytes, hipMemcpyDeviceToHost));
      OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(far.data(), params.also, bytes, hipMemcpyDeviceToHost));
      return OCTET_GPU(hipMemcpy(flags.data(), params.done, flags.size() * sizeof(uint32_t),
                                 hipMemcpyDeviceToHost));
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(near, words);
    EXPECT_EQ(far, words);
    EXPECT_EQ(flags, std::vector<uint32_t>(flags.size(), 1));
  }
}

// What the wave itself has written just before goes with the copies, through either memory.
TEST_F(BulkCopyTest, CopiesSeeTheWavesOwnStores) {
  constexpr uint32_t kRowBytes = 4096;
  constexpr int kRows = 8;
  for (const bool through_shared : {false, true}) {
    SCOPED_TRACE(through_shared ? "shared memory" : "global memory");
    std::vector<uint32_t> got(kRows * kRowBytes / 4);
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      if (rank.rank() != 0) return absl::OkStatus();
      OCTET_ASSIGN_OR_RETURN(const DeviceMemory to, DeviceMemory::Allocate(kRows * kRowBytes));
      OCTET_ASSIGN_OR_RETURN(const DeviceMemory scratch, DeviceMemory::Allocate(kRowBytes));
      BulkCopyParams params = {};
      params.to = to.as<uint32_t>();
      params.rows = kRows;
      params.row_bytes = kRowBytes;
      OCTET_RETURN_IF_GPU_ERROR(LaunchBulkCopyOwn(params, through_shared, scratch.as<uint32_t>(),
                                                  wave_size_, rank.stream()));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      return OCTET_GPU(hipMemcpy(got.data(), to.as<void>(), to.bytes(), hipMemcpyDeviceToHost));
    });
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], i / (kRowBytes / 4) + 1) << "word " << i;
    }
  }
}

}  // namespace
}  // namespace octet
