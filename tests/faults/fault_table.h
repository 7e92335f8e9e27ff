// Faults in the kernels of the strategies, and what each tool says of them.
#ifndef OCTET_TESTS_FAULTS_FAULT_TABLE_H_
#define OCTET_TESTS_FAULTS_FAULT_TABLE_H_

#include <ostream>
#include <string>
#include <vector>

#include "octet/ep_config.h"
#include "tests/faults/fault.h"
#include "tests/support/ep_harness.h"

namespace octet::faults {

// Which of the harness's calls.
enum class Calls {
  kSteps,
  kDispatches,  // of which one rank receives the first late
  kCombines,    // of one dispatch
};

// What a tool must say of a fault: all of these words. Empty: it does not see the fault, or has
// nothing to do with it.
using Words = std::vector<std::string>;

struct Row {
  Fault fault;
  std::string name;
  Strategy strategy = Strategy::kDirect;
  Flags flags = Flags::kToken;
  Calls calls = Calls::kSteps;
  Form form = Form::kFused;
  double drop = 0;
  bool idle_steps = false;  // every second step drops all: ranks do not wait for each other in it
  bool quantized = false;
  // In every build, under some schedule:
  Words comparison = {};  // a result that differs from the reference
  Words access = {};      // the emulation refuses an access
  Words deadline = {};    // a wait expires
  // In the builds that have them:
  Words weak = {};  // weak memory: a load is shown an old value
  Words tsan = {};
  Words asan = {};
};

inline void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> Table();

}  // namespace octet::faults

#endif  // OCTET_TESTS_FAULTS_FAULT_TABLE_H_
