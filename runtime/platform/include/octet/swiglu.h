// The parameters of a gated network's activation. Shared by host and device.
#ifndef OCTET_SWIGLU_H_
#define OCTET_SWIGLU_H_

#include <limits>

namespace octet {

// With gate cut to at most `limit`, and up to -limit .. limit:
//
//   gate / (1 + exp(-alpha · gate)) · (up + up_offset)
//
// The defaults are those of most models, silu(gate) · up. NaN is not cut.
struct SwiGlu {
  float alpha = 1.0F;                                    // finite
  float limit = std::numeric_limits<float>::infinity();  // above 0
  float up_offset = -0.0F;  // finite; adding -0 changes nothing, not even the sign of a zero

  constexpr float Gate(float gate) const { return gate > limit ? limit : gate; }
  constexpr float Up(float up) const {
    const float most = up > limit ? limit : up;
    return (most < -limit ? -limit : most) + up_offset;
  }

  bool operator==(const SwiGlu&) const = default;
};

}  // namespace octet

#endif  // OCTET_SWIGLU_H_
