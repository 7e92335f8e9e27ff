#include "tools/support/statistics.h"

#include <algorithm>
#include <cmath>
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
  statistics.max = values.back();
  double squares = 0;
  for (const double value : values) {
    squares += (value - statistics.mean) * (value - statistics.mean);
  }
  if (n > 1 && statistics.mean != 0) {
    statistics.cv = std::sqrt(squares / static_cast<double>(n - 1)) / statistics.mean;
  }
  return statistics;
}

double Gbps(int64_t bytes, double us) {
  constexpr double kBytesPerMicroOfGbps = 1e3;  // 1 GB/s is 1000 bytes in a microsecond
  return us > 0 ? static_cast<double>(bytes) / us / kBytesPerMicroOfGbps : 0;
}

}  // namespace octet
