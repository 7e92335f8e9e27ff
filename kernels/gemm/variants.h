// Turns the choices of a variant into template arguments.
#ifndef OCTET_KERNELS_GEMM_VARIANTS_H_
#define OCTET_KERNELS_GEMM_VARIANTS_H_

#include <type_traits>

#include "runtime/platform/gemm_call.h"

namespace octet {

// Return use(c), where c() is the argument as a constant expression. WithRowElement: of a product
// that can wait for its rows, which never has MXFP4.
template <typename Use>
auto WithRowElement(device::GemmElement element, Use use) {
  using device::GemmElement;
  switch (element) {
    case GemmElement::kBf16:
      return use(std::integral_constant<GemmElement, GemmElement::kBf16>());
    case GemmElement::kFp16:
      return use(std::integral_constant<GemmElement, GemmElement::kFp16>());
    case GemmElement::kFp8:
    case GemmElement::kMxfp4:
    case GemmElement::kFp8Mxfp4:
      break;
  }
  return use(std::integral_constant<GemmElement, GemmElement::kFp8>());
}

template <typename Use>
auto WithElement(device::GemmElement element, Use use) {
  using device::GemmElement;
  if (element == GemmElement::kMxfp4) {
    return use(std::integral_constant<GemmElement, GemmElement::kMxfp4>());
  }
  if (element == GemmElement::kFp8Mxfp4) {
    return use(std::integral_constant<GemmElement, GemmElement::kFp8Mxfp4>());
  }
  return WithRowElement(element, use);
}

template <typename Use>
auto WithBool(bool value, Use use) {
  return value ? use(std::true_type()) : use(std::false_type());
}

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_VARIANTS_H_
