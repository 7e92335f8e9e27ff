// The input is the text behind --routing=. What is accepted must draw tokens by its own rules.
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/check.h"
#include "tools/workload/philox.h"
#include "tools/workload/routing.h"

namespace octet::fuzz {
namespace {

struct Choice {
  int num_experts;
  int topk;
};
constexpr std::array<Choice, 4> kChoices = {{{1, 1}, {8, 2}, {96, 32}, {256, 8}}};

void Draw(const RoutingSpec& spec, const Choice& choice) {
  const RoutingGenerator generator(spec, choice.num_experts, 1);
  RoutingGenerator::Scratch scratch;
  std::vector<int32_t> ids(static_cast<size_t>(choice.topk), -2);
  PhiloxStream stream(1, 2, 3, 4);
  generator.Draw(stream, scratch, absl::MakeSpan(ids));
  if (spec.kind == RoutingKind::kOneExpert) {
    Check(ids[0] == 0);
    for (size_t k = 1; k < ids.size(); ++k) Check(ids[k] == -1);
    return;
  }
  const std::set<int32_t> different(ids.begin(), ids.end());
  Check(different.size() == ids.size());
  Check(*different.begin() >= 0 && *different.rbegin() < choice.num_experts);
}

void Run(absl::string_view text) {
  const absl::StatusOr<RoutingSpec> spec = ParseRouting(text);
  if (!spec.ok()) return CheckRefusal(spec.status());
  Check(spec->text == text);
  if (spec->kind == RoutingKind::kFile) return Check(absl::StrCat("file:", spec->path) == text);
  for (const Choice& choice : kChoices) {
    const absl::Status status = CheckRouting(*spec, choice.num_experts, choice.topk);
    if (status.ok()) {
      Draw(*spec, choice);
    } else {
      CheckRefusal(status);
    }
  }
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
