// The kernels' names for the types that they multiply.
#ifndef OCTET_KERNELS_TYPES_GEMM_ELEMENT_H_
#define OCTET_KERNELS_TYPES_GEMM_ELEMENT_H_

#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/types/weight_format.h"
#include "runtime/platform/gemm_call.h"

namespace octet {

// Returns what the elements of operands are to kernels. `format` is one that products have, with
// rows of the format that follows from it, or of `rows`.
device::GemmElement ElementOf(const WeightFormat& format);
device::GemmElement ElementOf(const WeightFormat& format, const WeightFormat& rows);

namespace device {

absl::Span<const EnumEntry<GemmElement>> EnumTable(GemmElement);  // names: octet/enum_names.h

}  // namespace device
}  // namespace octet

#endif  // OCTET_KERNELS_TYPES_GEMM_ELEMENT_H_
