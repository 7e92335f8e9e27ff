// Standard normal numbers from random words: Box and Muller's transform in double precision.
//
// The logarithm, sine and cosine are written out here, since C libraries round them differently.
// With IEEE double arithmetic and no contraction of a*b+c these give the same bits everywhere.
// Their loops have no branches, so that compilers can vectorise them.
#ifndef OCTET_TOOLS_WORKLOAD_NORMAL_H_
#define OCTET_TOOLS_WORKLOAD_NORMAL_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace octet {

// Returns the natural logarithm of a positive normal number, to about 2 units in the last place.
inline double PortableLog(double x) {
  constexpr double kLn2High = 0x1.62e42fefa38p-1;  // few enough bits that exponent * high is exact
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  // x = m * 2^e with m from sqrt(1/2) to sqrt(2).
  const uint64_t shifted = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  const double m = std::bit_cast<double>((shifted & kMantissa) + kSqrtHalf);
  // Get the exponent as a double without a conversion, which vector units of 64 bits may lack.
  const uint64_t biased = (shifted >> 52) + 2048;  // modulo 4096 it is e + 2048
  const double e = std::bit_cast<double>((biased & 4095) | 0x4330000000000000) - (0x1p52 + 2048.0);
  const double s = (m - 1.0) / (m + 1.0);  // log m = 2 atanh s
  const double z = s * s;
  double p = 2.0 / 21;
  p = p * z + 2.0 / 19;
  p = p * z + 2.0 / 17;
  p = p * z + 2.0 / 15;
  p = p * z + 2.0 / 13;
  p = p * z + 2.0 / 11;
  p = p * z + 2.0 / 9;
  p = p * z + 2.0 / 7;
  p = p * z + 2.0 / 5;
  p = p * z + 2.0 / 3;
  return e * kLn2High + (2.0 * s + (s * (z * p) + e * kLn2Low));
}

// The sine and cosine of 2π · word / 2^32.
struct SineCosine {
  double sine;
  double cosine;
};
inline SineCosine PortableSineCosine(uint32_t word) {
  constexpr double kRadians = 0x1.921fb54442d18p+0 * 0x1p-30;  // π/2 is 2^30 of the word
  const uint32_t quarter = (word + (uint32_t{1} << 29)) >> 30;
  // From -π/4 to π/4.
  const double a = static_cast<double>(static_cast<int32_t>(word - (quarter << 30))) * kRadians;
  const double z = a * a;
  double p = -1.0 / 1307674368000;
  p = p * z + 1.0 / 6227020800;
  p = p * z - 1.0 / 39916800;
  p = p * z + 1.0 / 362880;
  p = p * z - 1.0 / 5040;
  p = p * z + 1.0 / 120;
  p = p * z - 1.0 / 6;
  const double sine = a + a * (z * p);
  double q = 1.0 / 20922789888000;
  q = q * z - 1.0 / 87178291200;
  q = q * z + 1.0 / 479001600;
  q = q * z - 1.0 / 3628800;
  q = q * z + 1.0 / 40320;
  q = q * z - 1.0 / 720;
  q = q * z + 1.0 / 24;
  q = q * z - 0.5;
  const double cosine = 1.0 + z * q;
  const bool swap = (quarter & 1) != 0;
  const double s = swap ? cosine : sine;
  const double c = swap ? sine : cosine;
  return {(quarter & 2) != 0 ? -s : s, ((quarter + 1) & 2) != 0 ? -c : c};
}

// Computes two normal numbers from each pair of words; n even. |z| < 6.8.
void NormalsFromWords(const uint32_t* words, size_t n, float* normals);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_NORMAL_H_
