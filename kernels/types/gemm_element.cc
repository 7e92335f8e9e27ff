#include "kernels/types/gemm_element.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace octet {
namespace {

// The types that kernels multiply.
struct Element {
  TensorType type;
  device::GemmElement element;
};
constexpr Element kElements[] = {{TensorType::kBFloat16, device::GemmElement::kBf16},
                                 {TensorType::kFloat16, device::GemmElement::kFp16},
                                 {TensorType::kFloat8E4m3, device::GemmElement::kFp8},
                                 {TensorType::kFloat4E2m1, device::GemmElement::kMxfp4}};

}  // namespace

device::GemmElement ElementOf(const WeightFormat& format) {
  return std::find_if(std::begin(kElements), std::end(kElements) - 1,
                      [&format](const auto& each) { return each.type == format.element; })
      ->element;
}

device::GemmElement ElementOf(const WeightFormat& format, const WeightFormat& rows) {
  const device::GemmElement weights = ElementOf(format);
  const bool fp8 = ElementOf(rows) == device::GemmElement::kFp8;
  return weights == device::GemmElement::kMxfp4 && fp8 ? device::GemmElement::kFp8Mxfp4 : weights;
}

namespace device {

absl::Span<const EnumEntry<GemmElement>> EnumTable(GemmElement /*unused*/) {
  static const auto kTable = [] {
    std::array<EnumEntry<GemmElement>, std::size(kElements) + 1> table = {};
    table.back() = {GemmElement::kFp8Mxfp4, "fp8_mxfp4"};
    std::transform(std::begin(kElements), std::end(kElements), table.begin(),
                   [](const Element& each) {
                     return EnumEntry<GemmElement>{each.element, EnumName(each.type)};
                   });
    return table;
  }();
  return kTable;
}

}  // namespace device
}  // namespace octet
