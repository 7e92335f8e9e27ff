#include "octet/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/cpu_affinity.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/scoped_environment.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(CpuList, Parses) {
  EXPECT_THAT(ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(ParseCpuList("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(ParseCpuList("5,1-2,2"), ElementsAre(1, 2, 5));
}

TEST(CpuList, IsEmptyForAnythingElse) {
  for (const char* text : {"", ",", "a", "3-1", "1-", "-1", "1-2-3", "0,x", "0-99999999"}) {
    EXPECT_THAT(ParseCpuList(text), IsEmpty()) << text;
  }
}

TEST(CpuAffinity, ReadsSysfs) {
  const std::string sysfs = ::testing::TempDir() + "/octet_sysfs";
  const std::string gpu = sysfs + "/bus/pci/devices/0000:9a:00.0";
  const std::string node = sysfs + "/devices/system/node/node1";
  std::filesystem::create_directories(gpu);
  std::filesystem::create_directories(node);
  std::ofstream(gpu + "/numa_node") << "1\n";
  std::ofstream(node + "/cpulist") << "2-3,6\n";
  EXPECT_EQ(NumaNodeOfPciDevice("0000:9A:00.0", sysfs), 1);
  EXPECT_EQ(NumaNodeOfPciDevice("0000:9b:00.0", sysfs), -1);
  EXPECT_EQ(NumaNodeOfPciDevice("", sysfs), -1);
  EXPECT_THAT(CpusOfNumaNode(1, sysfs), ElementsAre(2, 3, 6));
  EXPECT_THAT(CpusOfNumaNode(0, sysfs), IsEmpty());
  EXPECT_THAT(CpusOfNumaNode(-1, sysfs), IsEmpty());
  // What the kernel says on machines without NUMA.
  std::ofstream(gpu + "/numa_node") << "-1\n";
  EXPECT_EQ(NumaNodeOfPciDevice("0000:9a:00.0", sysfs), -1);
  std::filesystem::remove_all(sysfs);
}

TEST(CpuAffinity, PinsTheCallingThread) {
  const std::vector<int> before = AllowedCpus();
  ASSERT_THAT(before, Not(IsEmpty()));
  ASSERT_OK(PinCallingThread({before.back()}));
  EXPECT_THAT(AllowedCpus(), ElementsAre(before.back()));
  ASSERT_OK(PinCallingThread(before));
  EXPECT_EQ(AllowedCpus(), before);
}

Topology ThreeGpus() {
  Topology topology;
  topology.gpus.resize(3);
  for (int device = 0; device < 3; ++device) {
    topology.gpus[device].device = device;
    topology.gpus[device].cooperative_launch = true;
  }
  topology.can_access.assign(3, std::vector<bool>(3, true));
  return topology;
}

TEST(CheckRanks, Counts) {
  const Topology topology = ThreeGpus();
  EXPECT_OK(topology.CheckRanks(1));
  EXPECT_OK(topology.CheckRanks(3));
  EXPECT_THAT(topology.CheckRanks(4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("4 ranks asked for, 3 GPUs found; OCTET_RANKS_PER_GPU=n lets")));
  EXPECT_EQ(topology.CheckRanks(0).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckRanks, NamesEveryPairAndGpu) {
  Topology topology = ThreeGpus();
  topology.can_access[0][1] = false;
  topology.can_access[2][0] = false;
  topology.gpus[2].cooperative_launch = false;
  EXPECT_THAT(topology.CheckRanks(3),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("GPU 0 cannot access the memory of GPU 1"),
                             HasSubstr("GPU 2 cannot access the memory of GPU 0"),
                             HasSubstr("GPU 2 has no cooperative launch"),
                             Not(HasSubstr("GPU 1 cannot")))));
  EXPECT_OK(topology.CheckRanks(1));
}

TEST(ShareGpus, DividesWhatAGpuHasAndKeepsWhoReachesWhom) {
  Topology topology = ThreeGpus();
  topology.can_access[0][1] = false;
  for (GpuInfo& gpu : topology.gpus) {
    gpu.name = "GPU";
    gpu.num_compute_units = 132;
    gpu.memory_bytes = 1000;
  }
  ASSERT_OK(topology.ShareGpus(4));
  ASSERT_EQ(topology.gpus.size(), 12U);
  ASSERT_EQ(topology.can_access.size(), 12U);
  for (int share = 0; share < 12; ++share) {
    const GpuInfo& gpu = topology.gpus[share];
    EXPECT_EQ(gpu.device, share % 3);
    EXPECT_EQ(gpu.name, "GPU / 4");
    EXPECT_EQ(gpu.num_compute_units, 32) << "one of 33 is left for small kernels";
    EXPECT_EQ(gpu.memory_bytes, 250U);
    EXPECT_TRUE(gpu.cooperative_launch);
    for (int peer = 0; peer < 12; ++peer) {
      EXPECT_EQ(topology.can_access[share][peer], share % 3 != 0 || peer % 3 != 1);
    }
  }
  EXPECT_THAT(topology.CheckRanks(13), StatusIs(absl::StatusCode::kInvalidArgument,
                                                HasSubstr("13 ranks asked for, 12 GPUs found")));
}

TEST(ShareGpus, NeedsComputeUnitsForEachShare) {
  Topology topology = ThreeGpus();
  for (GpuInfo& gpu : topology.gpus) gpu.num_compute_units = 7;
  EXPECT_THAT(
      topology.ShareGpus(4),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "OCTET_RANKS_PER_GPU=4: GPU 0 has 7 compute units, of which each rank needs 2"));
}

TEST(ShareGpus, NeedsKernelsThatRunSideBySide) {
  Topology topology = ThreeGpus();
  topology.platform = "amd";
  EXPECT_OK(topology.ShareGpus(1));
  EXPECT_EQ(topology.ShareGpus(2).code(), absl::StatusCode::kUnimplemented);
}

TEST(Topology, RefusesWhatIsNoNumberOfShares) {
  if (!DiscoverTopology().ok()) GTEST_SKIP() << "no GPU";
  const ScopedEnvironment shares("OCTET_RANKS_PER_GPU");
  for (const char* bad : {"", "0", "-1", "17", "two"}) {
    shares.Set(bad);
    EXPECT_THAT(
        DiscoverTopology().status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("OCTET_RANKS_PER_GPU is '", bad, "': not a number from 1 to 16")));
  }
}

TEST(Topology, DescribesThisMachine) {
  // The GPUs as they are.
  const ScopedEnvironment shares("OCTET_RANKS_PER_GPU");
  int count = 0;
  if (hipGetDeviceCount(&count) != hipSuccess || count == 0) {
    EXPECT_EQ(DiscoverTopology().status().code(), absl::StatusCode::kUnavailable);
    GTEST_SKIP() << "no GPU";
  }
  ASSERT_EQ(hipSetDevice(count - 1), hipSuccess);
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  ASSERT_OK(topology.status());
  int device = -1;
  ASSERT_EQ(hipGetDevice(&device), hipSuccess);
  EXPECT_EQ(device, count - 1) << "the current device was changed";
  ASSERT_EQ(hipSetDevice(0), hipSuccess);

  EXPECT_THAT(topology->platform, ::testing::AnyOf("emulation", "nvidia", "amd"));
  EXPECT_EQ(topology->emulated(), topology->platform == "emulation");
  ASSERT_EQ(topology->gpus.size(), static_cast<size_t>(count));
  ASSERT_EQ(topology->can_access.size(), static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const GpuInfo& gpu = topology->gpus[i];
    EXPECT_EQ(gpu.device, i);
    EXPECT_THAT(gpu.name, Not(IsEmpty()));
    EXPECT_GT(gpu.num_compute_units, 0);
    EXPECT_THAT(gpu.wave_size, ::testing::AnyOf(32, 64));
    EXPECT_GT(gpu.memory_bytes, size_t{1} << 20);
    ASSERT_EQ(topology->can_access[i].size(), static_cast<size_t>(count));
    EXPECT_TRUE(topology->can_access[i][i]);
  }
}

}  // namespace
}  // namespace octet
