// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel Random
// Numbers: As Easy as 1, 2, 3" (SC 2011). It is written out so that a seed gives the same bits
// everywhere. Any draw can be made independently, in any order, on any thread.
#ifndef OCTET_TOOLS_WORKLOAD_PHILOX_H_
#define OCTET_TOOLS_WORKLOAD_PHILOX_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace octet {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Returns four words of 32 random bits, a function of counter and key alone.
PhiloxCounter Philox(PhiloxCounter counter, PhiloxKey key);

// A sequence of draws. Word 0 of the counter counts blocks of four words; words 1 to 3 and the key
// select the sequence.
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint32_t word1, uint32_t word2, uint32_t word3)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        counter_{0, word1, word2, word3} {}

  uint32_t Next();

  // Uniform in 0 .. n-1 (n > 0), except for a bias below n / 2^32.
  uint32_t Below(uint32_t n) {
    return static_cast<uint32_t>((static_cast<uint64_t>(Next()) * n) >> 32);
  }

  // Uniform in [0, 1), a multiple of 2^-24: exact in float32.
  float UniformFloat() { return static_cast<float>(Next() >> 8) * 0x1p-24F; }

  // Uniform in (0, 1), an odd multiple of 2^-33.
  double UniformDouble() { return (static_cast<double>(Next()) + 0.5) * 0x1p-32; }

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  PhiloxCounter block_ = {};
  size_t used_ = 4;
};

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_PHILOX_H_
