// The list of a layer's memory: it is what Create takes, and bounded by the capacity.
#include "octet/layer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/kernels/layer/moe_layer_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

class LayerMemoryTest : public MoeLayerTest {
 protected:
  // The bytes that each rank's GPU has allocated.
  absl::StatusOr<std::vector<size_t>> Used() {
    std::vector<size_t> used(static_cast<size_t>(node_->num_ranks()));
    OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) {
      size_t free = 0;
      size_t total = 0;
      const absl::Status status = OCTET_GPU(hipMemGetInfo(&free, &total));
      used[static_cast<size_t>(rank.rank())] = total - free;
      return status;
    }));
    return used;
  }

  // Creates the layer and compares what it has taken.
  void ExpectListed(const MoeLayerConfig& config, int ranks) {
    SCOPED_TRACE(TextOf(config));
    MakeNode(ranks);
    if (IsSkipped() || HasFatalFailure()) return;
    const absl::StatusOr<LayerMemory> listed = MemoryOfLayer(config, node_->topology(), ranks);
    ASSERT_OK(listed.status());
    const absl::StatusOr<std::vector<size_t>> before = Used();
    ASSERT_OK(before.status());
    const absl::StatusOr<std::unique_ptr<MoeLayer>> layer = MoeLayer::Create(*node_, config);
    ASSERT_OK(layer.status());
    const absl::StatusOr<std::vector<size_t>> after = Used();
    ASSERT_OK(after.status());
    EXPECT_EQ((*layer)->config().strategy, listed->config.strategy);
    EXPECT_EQ((*layer)->config().fusion, listed->config.fusion);
    const size_t bytes = listed->BytesBesideWeights() + listed->Bytes(MemoryUse::kWeights);
    // Small pieces are not listed, and each takes whole units of the allocator.
    constexpr size_t kSmall = 64 << 10;
    for (size_t r = 0; r < after->size(); ++r) {
      const size_t taken = (*after)[r] - (*before)[r];
      EXPECT_LE(bytes, taken + taken / 100 + kSmall) << "rank " << r;
      EXPECT_GE(bytes + bytes / 100 + kSmall, taken) << "rank " << r;
    }
  }
};

MoeLayerConfig Large() {
  MoeLayerConfig config = Config();
  config.hidden = 512;
  config.intermediate = 256;
  config.max_tokens_per_rank = 600;
  return config;
}

TEST_F(LayerMemoryTest, IsWhatCreateTakes) {
  if (!OCTET_TEST_EMULATED) GTEST_SKIP() << "others use the GPU, too";
  for (const Strategy strategy :
       {Strategy::kDirect, Strategy::kHighThroughput, Strategy::kLowLatency}) {
    MoeLayerConfig config = Large();
    config.strategy = strategy;
    ExpectListed(config, 3);
  }
  MoeLayerConfig config = Large();
  config.shared_intermediate = 512;
  config.capacity_rows = 2000;
  config.fusion = Fusion::kTiles;
  ExpectListed(config, 3);
  config.fusion = Fusion::kNone;
  config.capacity_rows = 5000;
  config.weights = GemmFormat::kFp8;
  ExpectListed(config, 3);
  config.capacity_rows = 0;
  config.loads = {.count = true, .window = 4000};
  ExpectListed(config, 2);
}

TEST_F(LayerMemoryTest, IsWhatTheDecodePathTakes) {
  if (!OCTET_TEST_EMULATED) GTEST_SKIP() << "others use the GPU, too";
  MoeLayerConfig config = Large();
  config.path = LayerPath::kDecode;
  config.hidden = 2048;
  config.max_tokens_per_rank = 20;
  ExpectListed(config, 3);
  config.shared_intermediate = 4096;
  config.weights = GemmFormat::kFp8;
  ExpectListed(config, 3);
  config.placement = *Placement::InOrder(config.num_experts, 2);
  config.loads = {.count = true, .window = 4000};
  ExpectListed(config, 2);
}

// DeepSeek-V3 on eight GPUs, which nobody has here.
TEST(LayerMemoryListTest, ACapacityBoundsWhatEvenRoutingNeeds) {
  Topology topology;
  topology.platform = "nvidia";
  GpuInfo gpu;
  gpu.name = "NVIDIA H100 80GB HBM3";
  gpu.num_compute_units = 132;
  topology.gpus.assign(8, gpu);
  for (const GemmFormat weights : {GemmFormat::kSame, GemmFormat::kFp8}) {
    MoeLayerConfig config = {.num_experts = 256,
                             .topk = 8,
                             .hidden = 7168,
                             .intermediate = 2048,
                             .shared_intermediate = 2048};
    config.router = DeepseekRouter();
    config.weights = weights;
    config.max_tokens_per_rank = 8192;
    config.strategy = Strategy::kHighThroughput;
    const auto bytes = [&](double capacity) {
      config.capacity_rows =
          static_cast<int>(std::ceil(capacity * static_cast<double>(EvenRows(config))));
      const absl::StatusOr<LayerMemory> memory = MemoryOfLayer(config, topology, 8);
      EXPECT_OK(memory.status());
      return memory.ok() ? static_cast<double>(memory->BytesBesideWeights()) : 0.0;
    };
    const double even = bytes(1);
    EXPECT_LE(bytes(1.25), 1.3 * even);
    EXPECT_GE(bytes(0), 3 * even);
  }
}

TEST(LayerMemoryListTest, RefusesWhatCreateRefuses) {
  Topology topology;
  EXPECT_THAT(MemoryOfLayer(Config(), topology, 2).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no GPUs")));
  MoeLayerConfig config = Config();
  config.topk = 0;
  topology.gpus.resize(2);
  EXPECT_FALSE(MemoryOfLayer(config, topology, 2).ok());
}

}  // namespace
}  // namespace octet
