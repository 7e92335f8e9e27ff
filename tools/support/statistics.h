// The figures that summarise a series of measurements.
#ifndef OCTET_TOOLS_SUPPORT_STATISTICS_H_
#define OCTET_TOOLS_SUPPORT_STATISTICS_H_

#include <cstdint>
#include <vector>

namespace octet {

struct Statistics {
  double median = 0;
  double min = 0;
  double p99 = 0;  // the smallest value that at least 99% do not exceed
  double mean = 0;
  double max = 0;
  double cv = 0;  // coefficient of variation: standard deviation (of a sample) ÷ mean
};

// Returns all 0 for no values.
Statistics Summarize(std::vector<double> values);

// Returns 0 if no time was measured.
double Gbps(int64_t bytes, double us);

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_STATISTICS_H_
