#include "tools/statistics.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace octet {

Statistics Summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  Statistics statistics;
  statistics.median = (values[(n - 1) / 2] + values[n / 2]) / 2;
  statistics.min = values.front();
  statistics.p99 = values[(n * 99 + 99) / 100 - 1];
  statistics.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
  return statistics;
}

}  // namespace octet
