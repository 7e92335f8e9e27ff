// Computes from measured times how long a step takes with a placement: whether replicas, and
// planning them anew, are worth it.
//
//   step = call_us + links + products
//   links: dispatch and combine, each the longer of two times: of the rank that sends or receives
//     most, the bytes of its rows, each token once per rank and none to itself, at link_gbps; and
//     of the rank whose experts have most rows, the bytes of these, its own tokens' included, at
//     rows_tbps
//   products: of the slowest rank, the sum over its experts of the longer of two times: that of the
//     multiplications at tflops, and that of reading the weights at weights_tbps
#ifndef OCTET_TOOLS_WORKLOAD_PLACEMENT_SIMULATION_H_
#define OCTET_TOOLS_WORKLOAD_PLACEMENT_SIMULATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/placement.h"
#include "tools/workload/workload.h"

namespace octet {

// By default those of H100s and H200s in bench/PERFORMANCE.md, of rows and weights in BF16.
struct SimulatedParts {
  double call_us = 50.8;      // dispatch and combine of one token of each rank, high_throughput
  double link_gbps = 345.5;   // all-to-all stores of a GPU
  double rows_tbps = 2.6;     // rows that dispatch puts in their places, and combine adds
  double tflops = 772;        // products of many rows
  double weights_tbps = 3.0;  // products of few rows, bound by reading weights
  int hidden = 7168;
  int intermediate = 2048;  // of an expert with gate, up and down
};

struct SimulatedStep {
  double us = 0;
  double link_us = 0;
  double product_us = 0;
  double imbalance = 1;  // rows of the rank that has most, as a multiple of the mean
};

// Choices of a step, [T][K] of each rank.
using StepChoices = std::vector<std::vector<int32_t>>;

SimulatedStep SimulateStep(const SimulatedParts& parts, const Placement& placement, int topk,
                           const StepChoices& choices);
// The same if all ranks had the same share of the rows and of what crosses links, with the
// traffic of `placement`.
SimulatedStep SimulateEvenStep(const SimulatedParts& parts, const Placement& placement, int topk,
                               const StepChoices& choices);

struct SimulationSpec {
  WorkloadSpec workload = {};
  int slots = 0;   // of each rank
  int steps = 20;  // a recorded routing is cut into as many parts, by token
  int replan = 5;  // steps from one plan to the next
  int drift = 0;   // steps after which other experts are the popular ones; 0: never
  SimulatedParts parts = {};
};

struct SimulatedRun {
  std::string name;
  SimulatedStep mean;
  double most_us = 0;  // the slowest step
  double moved = 0;    // experts copied into other slots, in a step
};

// Simulates steps with experts in order, with a placement planned once for the loads of the first
// step, with one planned anew for the loads of the steps since the plan before, and the bound of
// equal shares. Errors are those of Workload::Create and PlanPlacement.
absl::StatusOr<std::vector<SimulatedRun>> Simulate(const SimulationSpec& spec);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_PLACEMENT_SIMULATION_H_
