// The few figures that a series of measurements is reported by.
#ifndef OCTET_TOOLS_STATISTICS_H_
#define OCTET_TOOLS_STATISTICS_H_

#include <vector>

namespace octet {

struct Statistics {
  double median = 0;
  double min = 0;
  double p99 = 0;  // the smallest value that at least 99% do not exceed
  double mean = 0;
};

// All 0 for no values.
Statistics Summarize(std::vector<double> values);

}  // namespace octet

#endif  // OCTET_TOOLS_STATISTICS_H_
