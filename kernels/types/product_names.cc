// The names of what configurations of products say. Tuning files have them, too, so that they lie
// below the products.
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/gemm_tiles.h"
#include "octet/grouped_gemm.h"
#include "octet/routed_experts.h"

namespace octet {

absl::Span<const EnumEntry<GemmActivation>> EnumTable(GemmActivation /*unused*/) {
  static constexpr EnumEntry<GemmActivation> kTable[] = {{GemmActivation::kNone, "none"},
                                                         {GemmActivation::kSwiGlu, "swiglu"}};
  return kTable;
}

absl::Span<const EnumEntry<GemmOutput>> EnumTable(GemmOutput /*unused*/) {
  static constexpr EnumEntry<GemmOutput> kTable[] = {{GemmOutput::kDtype, "dtype"},
                                                     {GemmOutput::kFloat32, "float32"}};
  return kTable;
}

absl::Span<const EnumEntry<GemmTiles>> EnumTable(GemmTiles /*unused*/) {
  static constexpr EnumEntry<GemmTiles> kTable[] = {{GemmTiles::kWide, "wide"},
                                                    {GemmTiles::kMedium, "medium"},
                                                    {GemmTiles::kFew64, "few64"},
                                                    {GemmTiles::kFew32, "few32"},
                                                    {GemmTiles::kFew16, "few16"}};
  return kTable;
}

absl::Span<const EnumEntry<Fusion>> EnumTable(Fusion /*unused*/) {
  static constexpr EnumEntry<Fusion> kTable[] = {{Fusion::kAuto, "auto"},
                                                 {Fusion::kNone, "none"},
                                                 {Fusion::kTiles, "tiles"},
                                                 {Fusion::kSerial, "serial"},
                                                 {Fusion::kEpilogue, "epilogue"}};
  return kTable;
}

absl::Span<const EnumEntry<SendOrder>> EnumTable(SendOrder /*unused*/) {
  static constexpr EnumEntry<SendOrder> kTable[] = {{SendOrder::kExpert, "expert"},
                                                    {SendOrder::kToken, "token"}};
  return kTable;
}

absl::Span<const EnumEntry<TileWaits>> EnumTable(TileWaits /*unused*/) {
  static constexpr EnumEntry<TileWaits> kTable[] = {{TileWaits::kGroup, "group"},
                                                    {TileWaits::kExpert, "expert"}};
  return kTable;
}

absl::Span<const EnumEntry<WeightsIn>> EnumTable(WeightsIn /*unused*/) {
  static constexpr EnumEntry<WeightsIn> kTable[] = {{WeightsIn::kCombine, "combine"},
                                                    {WeightsIn::kFirstProduct, "first_product"}};
  return kTable;
}

}  // namespace octet
