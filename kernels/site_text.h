// Names for the sites that kernels record when a wait expires or an input is refused.
#ifndef OCTET_KERNELS_SITE_TEXT_H_
#define OCTET_KERNELS_SITE_TEXT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/site.h"
#include "runtime/device/failure_record.h"

namespace octet {

// The names of a wait or a check in messages.
struct SiteText {
  absl::string_view phase;       // the waiting phase: "dispatch-send"
  absl::string_view flag;        // what it waits for: "dispatch credit"
  absl::string_view table = {};  // title of a table of such flags; empty: there is none
  bool by_rows = false;          // the table shows the rows that have arrived; otherwise epochs
  bool counted = false;          // the word holds a count beside the epoch (runtime/device/epoch.h)
};

const SiteText& TextOf(Site site);

// Returns the epoch in a word at that site.
uint64_t EpochIn(const SiteText& site, uint64_t word);

// Returns kInvalidArgument with the refused argument of `rank`, its value and the valid range.
absl::Status RefusedInput(int rank, const device::FailureRecord& record, int topk);

}  // namespace octet

#endif  // OCTET_KERNELS_SITE_TEXT_H_
