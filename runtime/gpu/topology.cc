#include "octet/topology.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "octet/peers.h"
#include "runtime/base/cpu_affinity.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

// Compute units kept free in each share: small kernels that wait, such as barriers, run there
// beside the kernels that fill the share.
constexpr int kSpareUnits = 1;

absl::StatusOr<GpuInfo> Describe(int device, const std::vector<int>& allowed_cpus) {
  GpuInfo gpu;
  gpu.device = device;
  hipDeviceProp_t properties;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDeviceProperties(&properties, device));
  gpu.name = properties.name;
  gpu.memory_bytes = properties.totalGlobalMem;

  int cooperative = 0;
  OCTET_RETURN_IF_GPU_ERROR(
      hipDeviceGetAttribute(&gpu.num_compute_units, hipDeviceAttributeMultiprocessorCount, device));
  OCTET_RETURN_IF_GPU_ERROR(
      hipDeviceGetAttribute(&gpu.wave_size, hipDeviceAttributeWarpSize, device));
  OCTET_RETURN_IF_GPU_ERROR(
      hipDeviceGetAttribute(&cooperative, hipDeviceAttributeCooperativeLaunch, device));
  gpu.cooperative_launch = cooperative != 0;

  // The GPU's location is optional information: failing to read it is no error.
  char bus_id[64] = "";
  if (hipDeviceGetPCIBusId(bus_id, sizeof(bus_id), device) == hipSuccess) {
    gpu.pci_bus_id = bus_id;
  } else {
    (void)hipGetLastError();
  }
  gpu.numa_node = NumaNodeOfPciDevice(gpu.pci_bus_id);
  const std::vector<int> near = CpusOfNumaNode(gpu.numa_node);
  std::set_intersection(near.begin(), near.end(), allowed_cpus.begin(), allowed_cpus.end(),
                        std::back_inserter(gpu.near_cpus));
  return gpu;
}

// Reads OCTET_RANKS_PER_GPU.
absl::StatusOr<int> RanksPerGpu() {
  const char* text = std::getenv("OCTET_RANKS_PER_GPU");
  if (text == nullptr) return 1;
  int ranks = 0;
  if (!absl::SimpleAtoi(text, &ranks) || ranks < 1 || ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("OCTET_RANKS_PER_GPU is '", text, "': not a number from 1 to ", kMaxRanks));
  }
  return ranks;
}

absl::StatusOr<Topology> Discover() {
  OCTET_ASSIGN_OR_RETURN(const int ranks_per_gpu, RanksPerGpu());
  Topology topology;
  topology.platform = OCTET_PLATFORM_NAME;
  int count = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDeviceCount(&count));
  if (count == 0) {
    return absl::UnavailableError(
        "no GPU: this process sees none (a driver, CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES)");
  }
  OCTET_RETURN_IF_GPU_ERROR(hipDriverGetVersion(&topology.driver_version));
  OCTET_RETURN_IF_GPU_ERROR(hipRuntimeGetVersion(&topology.runtime_version));

  const std::vector<int> allowed_cpus = AllowedCpus();
  topology.can_access.assign(count, std::vector<bool>(count, true));
  for (int device = 0; device < count; ++device) {
    OCTET_ASSIGN_OR_RETURN(GpuInfo gpu, Describe(device, allowed_cpus));
    topology.gpus.push_back(std::move(gpu));
    for (int peer = 0; peer < count; ++peer) {
      if (peer == device) continue;
      int can = 0;
      OCTET_RETURN_IF_GPU_ERROR(hipDeviceCanAccessPeer(&can, device, peer));
      topology.can_access[device][peer] = can != 0;
    }
  }
  OCTET_RETURN_IF_ERROR(topology.ShareGpus(ranks_per_gpu));
  return topology;
}

}  // namespace

absl::Status Topology::ShareGpus(int ranks_per_gpu) {
  if (ranks_per_gpu == 1) return absl::OkStatus();
  if (platform == "amd") {
    return absl::UnimplementedError(
        "ranks cannot share a GPU on AMD, which runs one cooperative kernel after the other: those "
        "that wait for each other would do so for ever");
  }
  const size_t num_gpus = gpus.size();
  for (GpuInfo& gpu : gpus) {
    const int units = gpu.num_compute_units / ranks_per_gpu - kSpareUnits;
    if (units < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "OCTET_RANKS_PER_GPU=", ranks_per_gpu, ": GPU ", gpu.device, " has ",
          gpu.num_compute_units, " compute units, of which each rank needs ", 1 + kSpareUnits));
    }
    gpu.num_compute_units = units;
    gpu.memory_bytes /= ranks_per_gpu;
    absl::StrAppend(&gpu.name, " / ", ranks_per_gpu);
  }
  const size_t num_shares = num_gpus * static_cast<size_t>(ranks_per_gpu);
  std::vector<std::vector<bool>> access(num_shares, std::vector<bool>(num_shares));
  for (size_t share = 0; share < num_shares; ++share) {
    if (share >= num_gpus) gpus.push_back(gpus[share % num_gpus]);
    for (size_t peer = 0; peer < num_shares; ++peer) {
      access[share][peer] = can_access[share % num_gpus][peer % num_gpus];
    }
  }
  can_access = std::move(access);
  return absl::OkStatus();
}

absl::Status Topology::CheckRanks(int num_ranks) const {
  if (num_ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_ranks is ", num_ranks, "; it must be at least 1, or 0 for all GPUs"));
  }
  if (num_ranks > static_cast<int>(gpus.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ranks, " ranks asked for, ", gpus.size(),
                     " GPUs found; OCTET_RANKS_PER_GPU=n lets n ranks share each"));
  }
  std::vector<std::string> faults;
  for (int device = 0; device < num_ranks; ++device) {
    if (!gpus[device].cooperative_launch) {
      faults.push_back(absl::StrCat("GPU ", device, " has no cooperative launch"));
    }
    for (int peer = 0; peer < num_ranks; ++peer) {
      if (peer != device && !can_access[device][peer]) {
        faults.push_back(absl::StrCat("GPU ", device, " cannot access the memory of GPU ", peer));
      }
    }
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(faults, "; "));
}

absl::StatusOr<Topology> DiscoverTopology() {
  int before = -1;
  const bool had_device = hipGetDevice(&before) == hipSuccess;
  absl::StatusOr<Topology> topology = Discover();
  if (had_device) {
    OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(before));
  } else {
    (void)hipGetLastError();
  }
  return topology;
}

}  // namespace octet
