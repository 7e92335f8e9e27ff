// Turns the failure records of a strategy's kernels into messages and tables. Host only: it knows
// neither GPUs nor memory.
#ifndef OCTET_KERNELS_EP_BASE_FLAG_REPORT_H_
#define OCTET_KERNELS_EP_BASE_FLAG_REPORT_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ep/site_info.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/flag_table.h"

namespace octet {

class FlagReport {
 public:
  // `sites`: the strategy's own, which must outlive the report. `topk`: EpConfig::topk.
  FlagReport(absl::Span<const SiteInfo> sites, int topk) : sites_(sites), topk_(topk) {}

  // Returns the site with that number: one of the strategy's, a check that all strategies make
  // (kernels/ep/device/site.h) or, for an unknown number, one that has no text.
  const SiteInfo& InfoOf(uint32_t number) const;

  // Returns kDeadlineExceeded for an expired wait of `rank`, or what SiteInfo::refused returns for
  // refused input.
  absl::Status Describe(int rank, const device::FailureRecord& record) const;

  // Returns a table for each site that some rank waits at, with a row for each such rank.
  // `waits[r]`: what rank r waits for (kind kNone: nothing). `words`: returns the words that a wait
  // is for, as they are now.
  std::vector<FlagTable> Tables(
      absl::Span<const device::FailureRecord> waits,
      absl::FunctionRef<std::vector<uint64_t>(const SiteInfo&, const FlagWait&)> words) const;

 private:
  absl::Span<const SiteInfo> sites_;
  int topk_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_FLAG_REPORT_H_
