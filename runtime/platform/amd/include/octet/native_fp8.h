// The FP8 format that this platform converts to, known to the host as well: of AMD GPUs, that of
// gfx942. gfx950 has instructions for the other one instead, and gfx90a for neither; there it is
// made in software (fp8_ops.h).
#ifndef OCTET_NATIVE_FP8_H_
#define OCTET_NATIVE_FP8_H_

#include "octet/fp8_format.h"

namespace octet {

using NativeFp8 = E4m3Fnuz;

}  // namespace octet

#endif  // OCTET_NATIVE_FP8_H_
