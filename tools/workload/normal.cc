#include "tools/workload/normal.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace octet {

void NormalsFromWords(const uint32_t* words, size_t n, float* normals) {
  for (size_t i = 0; i < n; i += 2) {
    const double u = (static_cast<double>(words[i]) + 0.5) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * PortableLog(u));
    const SineCosine angle = PortableSineCosine(words[i + 1]);
    normals[i] = static_cast<float>(radius * angle.cosine);
    normals[i + 1] = static_cast<float>(radius * angle.sine);
  }
}

}  // namespace octet
