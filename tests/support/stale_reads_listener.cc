// Weak memory: a test in which a kernel was shown an old value, and that has not asked about it
// (emulation::TakeStaleReads), fails.
#include <gtest/gtest.h>

#include "emulation.h"

namespace octet {
namespace {

class StaleReadsListener : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    const emulation::StaleReads stale = emulation::TakeStaleReads();
    if (stale.count != 0) ADD_FAILURE() << stale.count << " stale reads\n" << stale.text;
  }
};

// Before main() so that gtest_main will do.
[[maybe_unused]] const bool kAdded = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new StaleReadsListener);
  return true;
}();

}  // namespace
}  // namespace octet
