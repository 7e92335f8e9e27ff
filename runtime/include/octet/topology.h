// What the machine has: GPUs, who can reach whom, which CPUs are near.
//
// A GPU can stand for several. With OCTET_RANKS_PER_GPU=n in the environment each is divided into n
// shares, which are listed and used as if they were GPUs: tests and bugs of eight ranks run on two
// GPUs, or on one. Kernels of ranks that share a GPU wait for each other like all others, so each
// has its part of the compute units. Times then say nothing about links.
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
  std::string pci_bus_id;      // "0000:19:00.0", empty where there is none
  int numa_node = -1;          // -1: not known
  std::vector<int> near_cpus;  // CPUs of that NUMA node that this process may use; may be empty
  int num_compute_units = 0;   // SMs or CUs, of the share
  int wave_size = 0;           // lanes
  size_t memory_bytes = 0;
  bool cooperative_launch = false;
};

struct Topology {
  std::string platform;    // "emulation", "nvidia" or "amd": what was compiled in
  int driver_version = 0;  // as HIP reports them
  int runtime_version = 0;
  std::vector<GpuInfo> gpus;                  // [rank]
  std::vector<std::vector<bool>> can_access;  // [rank][peer]

  // Divides each GPU: shares of GPU d become d, d + G, d + 2 G, ... of G GPUs, so that ranks share
  // as late as they can. kInvalidArgument if a GPU has too few compute units for that,
  // kUnimplemented on AMD, where cooperative kernels of a GPU do not run side by side.
  absl::Status ShareGpus(int ranks_per_gpu);

  // What would stop a run on the first `num_ranks` GPUs: too few GPUs, a pair without peer access
  // (each named), a GPU without cooperative launch. OK if nothing would.
  absl::Status CheckRanks(int num_ranks) const;
};

// Looks at the machine. Changes nothing but the calling thread's current device, which is put back.
// kUnavailable when there is no GPU or no driver, kInvalidArgument if OCTET_RANKS_PER_GPU is no
// number from 1 to kMaxRanks; the errors of ShareGpus. Any thread may call.
absl::StatusOr<Topology> DiscoverTopology();

}  // namespace octet

#endif  // OCTET_TOPOLOGY_H_
