// The router of a few tokens in one launch: logits, and the choice of experts by them.
#ifndef OCTET_KERNELS_ROUTER_FEW_TOKENS_H_
#define OCTET_KERNELS_ROUTER_FEW_TOKENS_H_

#include <hip/hip_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/router/route.h"

namespace octet {

// The most tokens of a launch. For more, a product and Route share the work better.
inline constexpr int kFewRoutedTokens = 16;

// Logits are added up of so many parts, each of some of the columns.
inline constexpr int kLogitParts = 8;

struct FewTokensParams {
  const void* x;            // [route.num_tokens][hidden], at a multiple of 16 bytes
  const void* router;       // [logit_rows][hidden], of the same type, likewise
  int hidden;               // a multiple of 8
  int logit_rows;           // at least route.num_experts
  const float* logit_bias;  // [logit_rows] that is added to logits, or nullptr
  // At most kFewRoutedTokens tokens; stride is at least logit_rows. The kernel writes its logits.
  RouteParams route;
  float* logits;  // the same memory as route.logits
  // [kLogitParts][kFewRoutedTokens][LogitPartStride], all kNoLogitPart before each launch and after
  // it; concurrent launches need their own.
  uint32_t* parts;
  bool fp16;  // the type; otherwise bfloat16
};

// The word of a part that has not come, a NaN that no part is, and each of its bytes.
inline constexpr uint32_t kNoLogitPart = 0xffffffffU;
inline constexpr int kNoLogitPartByte = 0xff;
// The word of a part, whatever NaN it is.
__host__ __device__ constexpr uint32_t LogitPartWord(float part) {
  constexpr uint32_t kNan = 0x7fc00000U;
  return part == part ? std::bit_cast<uint32_t>(part) : kNan;  // NOLINT(misc-redundant-expression)
}
// Words of a token's logits in a part: stores of a block do not share sectors with others.
constexpr int LogitPartStride(int logit_rows) {
  constexpr int kWordsOfStore = 16;
  return (logit_rows + kWordsOfStore - 1) / kWordsOfStore * kWordsOfStore;
}
constexpr size_t LogitPartWords(int logit_rows) {
  return static_cast<size_t>(LogitPartStride(logit_rows)) * kFewRoutedTokens * kLogitParts;
}

// Loads the kernel on the current device.
hipError_t LoadRouteFewTokens(int num_experts, bool fp16);
hipError_t LaunchRouteFewTokens(const FewTokensParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_ROUTER_FEW_TOKENS_H_
