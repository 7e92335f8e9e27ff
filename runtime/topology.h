// What the machine has: GPUs, who can reach whom, which CPUs are near.
#ifndef OCTET_RUNTIME_TOPOLOGY_H_
#define OCTET_RUNTIME_TOPOLOGY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace octet {

struct GpuInfo {
  int device = 0;              // HIP's number
  std::string name;            // "NVIDIA H200"
  std::string pci_bus_id;      // "0000:19:00.0", empty where there is none
  int numa_node = -1;          // -1: not known
  std::vector<int> near_cpus;  // CPUs of that NUMA node that this process may use; may be empty
  int num_compute_units = 0;   // SMs or CUs
  int wave_size = 0;           // lanes
  size_t memory_bytes = 0;
  bool cooperative_launch = false;
};

struct Topology {
  std::string platform;    // "emulation", "nvidia" or "amd": what was compiled in
  int driver_version = 0;  // as HIP reports them
  int runtime_version = 0;
  std::vector<GpuInfo> gpus;
  std::vector<std::vector<bool>> can_access;  // [device][peer]

  // What would stop a run on the first `num_ranks` GPUs: too few GPUs, a pair without peer access
  // (each named), a GPU without cooperative launch. OK if nothing would.
  absl::Status CheckRanks(int num_ranks) const;
};

// Looks at the machine. Changes nothing but the calling thread's current device, which is put back.
// kUnavailable when there is no GPU or no driver. Any thread may call.
absl::StatusOr<Topology> DiscoverTopology();

}  // namespace octet

#endif  // OCTET_RUNTIME_TOPOLOGY_H_
