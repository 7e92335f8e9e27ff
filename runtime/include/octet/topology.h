// The hardware of this machine: its GPUs, peer access between them, the CPUs near them.
//
// With OCTET_RANKS_PER_GPU=n in the environment each GPU is divided into n shares, which are listed
// and used like GPUs: tests with eight ranks, and bugs that need eight, run on two GPUs or on one.
// Kernels of ranks that share a GPU wait for each other like any others, so each share has its own
// compute units. Times measured this way say nothing about links.
#ifndef OCTET_TOPOLOGY_H_
#define OCTET_TOPOLOGY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace octet {

struct GpuInfo {
  int device = 0;              // HIP's number; the same for all shares of a GPU
  std::string name;            // "NVIDIA H200"; "NVIDIA H200 / 4" is one of four shares
  std::string pci_bus_id;      // "0000:19:00.0"; may be empty
  int numa_node = -1;          // -1: unknown
  std::vector<int> near_cpus;  // CPUs of that NUMA node that this process may use; may be empty
  int num_compute_units = 0;   // SMs or CUs of the share
  int wave_size = 0;           // lanes
  size_t memory_bytes = 0;
  bool cooperative_launch = false;
};

struct Topology {
  std::string platform;    // "emulation", "nvidia" or "amd", as configured
  int driver_version = 0;  // both versions as HIP reports them
  int runtime_version = 0;
  std::vector<GpuInfo> gpus;                  // [rank]
  std::vector<std::vector<bool>> can_access;  // [rank][peer]

  // Returns whether the GPUs are emulated: results and failures are a GPU's, times are not.
  bool emulated() const { return platform == "emulation"; }

  // Divides each GPU into shares. Of G GPUs, GPU d becomes d, d + G, d + 2 G, ..., so that the
  // first G ranks use different GPUs. kInvalidArgument if a GPU has too few compute units,
  // kUnimplemented on AMD, where cooperative kernels of one GPU do not run side by side.
  absl::Status ShareGpus(int ranks_per_gpu);

  // Returns an error if the first `num_ranks` GPUs cannot run together: too few GPUs, pairs without
  // peer access (each named), a GPU without cooperative launch.
  absl::Status CheckRanks(int num_ranks) const;
};

// Examines the machine; restores the calling thread's current device and changes nothing else.
// kUnavailable without a GPU or driver, kInvalidArgument if OCTET_RANKS_PER_GPU is not a number
// from 1 to kMaxRanks; also the errors of ShareGpus. Any thread may call.
absl::StatusOr<Topology> DiscoverTopology();

}  // namespace octet

#endif  // OCTET_TOPOLOGY_H_
