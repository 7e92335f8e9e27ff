// The waits in the kernel of a decode layer; decode_path.cc has their texts. Shared by host and
// device.
#ifndef OCTET_KERNELS_DECODE_SITES_H_
#define OCTET_KERNELS_DECODE_SITES_H_

#include <cstdint>

namespace octet::decode {

enum class Site : uint32_t {
  kTokens,    // a peer's tokens; index: the part
  kLogits,    // all blocks of this rank have computed their logits; index: the block that waits
  kProducts,  // all blocks of this rank have finished the first products; likewise
  kPartials,  // a peer's partial rows
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_SITES_H_
