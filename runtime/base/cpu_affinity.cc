#include "runtime/base/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace octet {
namespace {

// Returns the first line of a file, stripped of blanks; empty if there is none.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

}  // namespace

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> ParseCpuList(absl::string_view text) {
  std::vector<int> cpus;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first || last >= CPU_SETSIZE) {
      return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

int NumaNodeOfPciDevice(absl::string_view bus_id, const std::string& sysfs) {
  if (bus_id.empty()) return -1;
  const std::string text = ReadLine(
      absl::StrCat(sysfs, "/bus/pci/devices/", absl::AsciiStrToLower(bus_id), "/numa_node"));
  int node = -1;
  return absl::SimpleAtoi(text, &node) && node >= 0 ? node : -1;
}

std::vector<int> CpusOfNumaNode(int numa_node, const std::string& sysfs) {
  if (numa_node < 0) return {};
  return ParseCpuList(
      ReadLine(absl::StrCat(sysfs, "/devices/system/node/node", numa_node, "/cpulist")));
}

absl::Status PinCallingThread(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("binding a thread to ", cpus.size(), " CPUs"));
  }
  return absl::OkStatus();
}

}  // namespace octet
