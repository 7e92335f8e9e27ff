// Which CPUs this process may use, and which of them are near a PCI device.
#ifndef OCTET_RUNTIME_CPU_AFFINITY_H_
#define OCTET_RUNTIME_CPU_AFFINITY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octet {

// CPUs that the calling thread may run on, ascending.
std::vector<int> AllowedCpus();

// "0-3,8,10-11" as numbers, ascending; empty if the text is anything else.
std::vector<int> ParseCpuList(absl::string_view text);

// The NUMA node of the PCI device ("0000:19:00.0", upper or lower case); -1 where it is not known.
// `sysfs` is where the kernel shows its devices.
int NumaNodeOfPciDevice(absl::string_view bus_id, const std::string& sysfs = "/sys");

// The CPUs of a NUMA node; empty where they are not known.
std::vector<int> CpusOfNumaNode(int numa_node, const std::string& sysfs = "/sys");

// Binds the calling thread to `cpus` (not empty).
absl::Status PinCallingThread(const std::vector<int>& cpus);

}  // namespace octet

#endif  // OCTET_RUNTIME_CPU_AFFINITY_H_
