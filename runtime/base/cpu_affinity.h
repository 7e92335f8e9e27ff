// The CPUs that this process may use, and those near a PCI device.
#ifndef OCTET_RUNTIME_BASE_CPU_AFFINITY_H_
#define OCTET_RUNTIME_BASE_CPU_AFFINITY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octet {

// Returns the CPUs that the calling thread may run on, ascending.
std::vector<int> AllowedCpus();

// Parses "0-3,8,10-11" into numbers, ascending. Returns an empty list if the text is malformed.
std::vector<int> ParseCpuList(absl::string_view text);

// Returns the NUMA node of the PCI device ("0000:19:00.0", upper or lower case); -1 if unknown.
// `sysfs` is where sysfs is mounted.
int NumaNodeOfPciDevice(absl::string_view bus_id, const std::string& sysfs = "/sys");

// Returns the CPUs of a NUMA node; empty if unknown.
std::vector<int> CpusOfNumaNode(int numa_node, const std::string& sysfs = "/sys");

// Binds the calling thread to `cpus` (not empty).
absl::Status PinCallingThread(const std::vector<int>& cpus);

}  // namespace octet

#endif  // OCTET_RUNTIME_BASE_CPU_AFFINITY_H_
