// The words for what kernels record when a wait expires or an input is refused.
#ifndef OCTET_KERNELS_SITE_TEXT_H_
#define OCTET_KERNELS_SITE_TEXT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/site.h"
#include "runtime/device/failure_record.h"

namespace octet {

// A wait or a check, for people.
struct SiteText {
  absl::string_view phase;       // who waits: "dispatch-send"
  absl::string_view flag;        // for what: "dispatch credit"
  absl::string_view table = {};  // title of a table of such flags; empty: there is none
  bool by_rows = false;          // its cells are rows that have come; else epochs
  bool counted = false;          // the epoch has a count beside it (runtime/device/epoch.h)
};

const SiteText& TextOf(Site site);

// The epoch in a word at that site.
uint64_t EpochIn(const SiteText& site, uint64_t word);

// kInvalidArgument: which argument of `rank` was refused, its value and what it must be.
absl::Status RefusedInput(int rank, const device::FailureRecord& record, int topk);

}  // namespace octet

#endif  // OCTET_KERNELS_SITE_TEXT_H_
