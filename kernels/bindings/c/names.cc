// The names of values in C.
#include <array>
#include <cstdint>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/bindings/c/abi.h"
#include "octet/domain.h"
#include "octet/dtype.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/fp8_scale.h"
#include "octet/grouped_gemm.h"
#include "octet/moe_layer.h"
#include "octet/octet.h"
#include "octet/routed_experts.h"
#include "octet/router.h"
#include "octet/types/weight_format.h"
#include "runtime/base/status_macros.h"

namespace octet::c {
namespace {

struct Kind {
  absl::string_view name;
  absl::StatusOr<int32_t> (*value)(absl::string_view kind, absl::string_view name);
  absl::StatusOr<const char*> (*text)(absl::string_view kind, int32_t value);
};

template <typename Enum>
int32_t NumberOf(Enum value) {
  return static_cast<int32_t>(value);
}
int32_t NumberOf(DType value) { return CodeOf(value); }

template <typename Enum>
absl::Status ReadAny(absl::string_view name, int32_t code, Enum* value) {
  return ReadEnum(name, code, value);
}
absl::Status ReadAny(absl::string_view name, int32_t code, DType* value) {
  return ReadDType(name, code, value);
}

template <typename Enum>
constexpr Kind KindOf(absl::string_view name) {
  return {name,
          [](absl::string_view kind, absl::string_view text) -> absl::StatusOr<int32_t> {
            OCTET_ASSIGN_OR_RETURN(const Enum value, ParseEnum<Enum>(kind, text));
            return NumberOf(value);
          },
          [](absl::string_view kind, int32_t code) -> absl::StatusOr<const char*> {
            Enum value = {};
            OCTET_RETURN_IF_ERROR(ReadAny(kind, code, &value));
            return EnumName(value).data();  // of a literal: a 0 follows
          }};
}

constexpr std::array kKinds = {
    KindOf<CombineMethod>("combine_method"),
    KindOf<CombineOrder>("combine_order"),
    KindOf<DType>("dtype"),
    KindOf<DispatchFormat>("dispatch_format"),
    KindOf<Duplicates>("duplicates"),
    KindOf<FailurePolicy>("failure_policy"),
    KindOf<Fusion>("fusion"),
    KindOf<GemmActivation>("gemm_activation"),
    KindOf<GemmFormat>("gemm_format"),
    KindOf<GemmOutput>("gemm_output"),
    KindOf<GroupScore>("group_score"),
    KindOf<LayerPath>("layer_path"),
    KindOf<Output>("output"),
    KindOf<RailTransport>("rail_transport"),
    KindOf<RouterScores>("router_scores"),
    KindOf<ScaleFormat>("scale_format"),
    KindOf<SharedExperts>("shared_experts"),
    KindOf<Strategy>("strategy"),
    KindOf<TensorType>("tensor_type"),
    KindOf<WeightsIn>("weights_in"),
};

absl::StatusOr<const Kind*> Find(absl::string_view name) {
  const auto it = absl::c_find_if(kKinds, [&](const Kind& kind) { return kind.name == name; });
  if (it != kKinds.end()) return &*it;
  return Refused(absl::StrCat("kind '", name, "' is not one of ",
                              absl::StrJoin(kKinds, ", ", [](std::string* out, const Kind& kind) {
                                absl::StrAppend(out, kind.name);
                              })));
}

}  // namespace
}  // namespace octet::c

using octet::c::Call;
using octet::c::NotNull;

int32_t octet_value_of_name(const char* kind, const char* name, int32_t* value) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"kind", kind}, {"name", name}, {"value", value}}));
    OCTET_ASSIGN_OR_RETURN(const octet::c::Kind* found, octet::c::Find(kind));
    OCTET_ASSIGN_OR_RETURN(*value, found->value(kind, name));
    return absl::OkStatus();
  });
}

int32_t octet_name_of_value(const char* kind, int32_t value, const char** name) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"kind", kind}, {"name", name}}));
    OCTET_ASSIGN_OR_RETURN(const octet::c::Kind* found, octet::c::Find(kind));
    OCTET_ASSIGN_OR_RETURN(*name, found->text(kind, value));
    return absl::OkStatus();
  });
}
