#include "tools/dump.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/npy.h"

namespace octet {

absl::Status WriteDump(const std::string& folder, const Workload& workload,
                       const std::vector<RankOutput>& outputs) {
  const WorkloadSpec& spec = workload.spec();
  const NpyType row = spec.dtype == DType::kFloat16 ? NpyType::kFloat16 : NpyType::kUint16;
  for (size_t r = 0; r < outputs.size(); ++r) {
    const RankInput& input = workload.inputs()[r];
    const RankOutput& output = outputs[r];
    const int64_t tokens = input.num_tokens;
    const auto rows = static_cast<int64_t>(output.sources.size());
    const auto num_local = static_cast<int64_t>(output.expert_counts.size());
    std::vector<int32_t> sources;
    for (const RowSource& source : output.sources) {
      sources.insert(sources.end(), {source.rank, source.token, source.k});
    }
    const auto write = [&](absl::string_view name, NpyType type, absl::Span<const int64_t> shape,
                           const void* data) {
      return WriteNpy(absl::StrCat(folder, "/rank", r, "_", name, ".npy"), type, shape, data);
    };
    const auto write_int32 = [&](absl::string_view name, absl::Span<const int64_t> shape,
                                 const void* data) {
      return write(name, NpyType::kInt32, shape, data);
    };
    OCTET_RETURN_IF_ERROR(write("x", row, {tokens, spec.hidden}, input.x.data()));
    OCTET_RETURN_IF_ERROR(write_int32("topk_idx", {tokens, spec.topk}, input.topk_idx.data()));
    OCTET_RETURN_IF_ERROR(
        write("topk_weights", NpyType::kFloat32, {tokens, spec.topk}, input.topk_weights.data()));
    OCTET_RETURN_IF_ERROR(write("y", row, {tokens, spec.hidden}, output.y.data()));
    OCTET_RETURN_IF_ERROR(write("recv_x", row, {rows, spec.hidden}, output.recv_x.data()));
    OCTET_RETURN_IF_ERROR(write_int32("recv_src", {rows, 3}, sources.data()));
    OCTET_RETURN_IF_ERROR(write_int32("expert_counts", {num_local}, output.expert_counts.data()));
    OCTET_RETURN_IF_ERROR(
        write_int32("expert_offsets", {num_local + 1}, output.expert_offsets.data()));
  }
  return absl::OkStatus();
}

}  // namespace octet
