// Turns whether a kernel is traced into a template argument, as kernels/gemm/variants.h does for
// what else it computes.
#ifndef OCTET_KERNELS_FUSED_WITH_TRACER_H_
#define OCTET_KERNELS_FUSED_WITH_TRACER_H_

#include <type_traits>

#include "runtime/device/tracer.h"

namespace octet {

// Returns use(std::type_identity<T>()), T being device::Tracer or device::NoTracer.
template <typename Use>
auto WithTracer(bool traced, Use use) {
  return traced ? use(std::type_identity<device::Tracer>())
                : use(std::type_identity<device::NoTracer>());
}

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_WITH_TRACER_H_
