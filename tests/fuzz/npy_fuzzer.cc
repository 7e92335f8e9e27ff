// The input is a .npy file, and then recorded routing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tests/fuzz/check.h"
#include "tools/support/npy.h"
#include "tools/workload/routing.h"

namespace octet::fuzz {
namespace {

constexpr int kExperts = 8;

// What CheckRecorded promises, looked at in another way.
void CheckIds(const RecordedRouting& routing) {
  const auto topk = static_cast<size_t>(routing.topk);
  for (size_t rank = 0; rank < routing.topk_idx.size(); ++rank) {
    const absl::Span<const int32_t> ids = routing.topk_idx[rank];
    Check(ids.size() == topk * static_cast<size_t>(routing.num_tokens(rank)));
    for (size_t first = 0; first < ids.size(); first += topk) {
      std::multiset<int32_t> token(&ids[first], &ids[first] + topk);
      token.erase(-1);
      Check(token.empty() || (*token.begin() >= 0 && *token.rbegin() < kExperts));
      Check(std::adjacent_find(token.begin(), token.end()) == token.end());
    }
  }
}

void Run(absl::string_view file) {
  const absl::StatusOr<NpyArray> array = ParseNpy(file);
  if (!array.ok()) return CheckRefusal(array.status());
  // Memory is bounded by the file, whatever its header says.
  Check(array->data.size() <= file.size());
  // Written again, it is read as the same.
  const absl::StatusOr<NpyArray> again =
      ParseNpy(NpyHeader(array->type, array->shape) + array->data);
  Check(again.ok() && again->type == array->type && again->shape == array->shape &&
        again->data == array->data);
  for (const int num_ranks : {1, 2, 3, 8}) {
    const absl::StatusOr<RecordedRouting> routing = RecordedFromNpy(*array, num_ranks);
    if (!routing.ok()) {
      CheckRefusal(routing.status());
      continue;
    }
    Check(routing->topk_idx.size() == static_cast<size_t>(num_ranks) && routing->topk >= 1);
    const absl::Status status = CheckRecorded(*routing, kExperts);
    if (!status.ok()) {
      CheckRefusal(status);
      continue;
    }
    CheckIds(*routing);
  }
}

}  // namespace
}  // namespace octet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octet::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
