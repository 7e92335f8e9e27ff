// The last step of a run as .npy files, so that anybody can check it with NumPy alone.
#ifndef OCTET_TOOLS_DUMP_H_
#define OCTET_TOOLS_DUMP_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/step_runner.h"
#include "tools/workload.h"

namespace octet {

// Writes into `folder`, which must exist, for each rank r:
//   rank{r}_x.npy               [T, H]     float16, or the bits of bfloat16 as uint16
//   rank{r}_topk_idx.npy        [T, K]     int32, -1: dropped
//   rank{r}_topk_weights.npy    [T, K]     float32
//   rank{r}_y.npy               [T, H]     as x
//   rank{r}_recv_x.npy          [rows, H]  as x, expert by expert
//   rank{r}_recv_src.npy        [rows, 3]  int32: source rank, token, k
//   rank{r}_expert_counts.npy   [L]        int32
//   rank{r}_expert_offsets.npy  [L + 1]    int32
absl::Status WriteDump(const std::string& folder, const Workload& workload,
                       const std::vector<RankOutput>& outputs);

}  // namespace octet

#endif  // OCTET_TOOLS_DUMP_H_
