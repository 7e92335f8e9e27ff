#include "kernels/site_text.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/device/epoch.h"

namespace octet {

const SiteText& TextOf(Site site) {
  // In the order of Site.
  static constexpr std::array<SiteText, 14> kTexts = {{
      {.phase = "dispatch-send", .flag = "share count of block", .counted = true},
      {.phase = "dispatch-send",
       .flag = "dispatch credit",
       .table = "dispatch credits: epoch seen from each rank"},
      {.phase = "dispatch-send",
       .flag = "dispatch credit",
       .table = "dispatch credits: epoch seen from each rank",
       .counted = true},
      {.phase = "dispatch-receive",
       .flag = "row count",
       .table = "row counts: epoch seen from each rank",
       .counted = true},
      {.phase = "dispatch-receive",
       .flag = "packet flag of slot",
       .table = "dispatched tokens: arrived / announced by each rank",
       .by_rows = true,
       .counted = true},
      {.phase = "dispatch-receive",
       .flag = "row flag of slot",
       .table = "dispatched rows: arrived / announced by each rank",
       .by_rows = true},
      {.phase = "dispatch-receive",
       .flag = "source flag",
       .table = "dispatch source flags: epoch seen from each rank"},
      {.phase = "combine-send",
       .flag = "combine credit",
       .table = "combine credits: epoch seen from each rank"},
      {.phase = "combine-receive",
       .flag = "row flag of token",
       .table = "combined rows: arrived / to come back from each rank",
       .by_rows = true},
      {.phase = "combine-receive",
       .flag = "source flag",
       .table = "combine source flags: epoch seen from each rank"},
      {.phase = "dispatch-send", .flag = "expert id"},
      {.phase = "dispatch-send", .flag = "expert id"},
      {.phase = "dispatch-send", .flag = "scatter index"},
      {.phase = "dispatch-send", .flag = "cached layout"},
  }};
  return kTexts[static_cast<size_t>(site)];
}

uint64_t EpochIn(const SiteText& site, uint64_t word) {
  return site.counted ? device::EpochOf(word) : word;
}

absl::Status RefusedInput(int rank, const device::FailureRecord& record, int topk) {
  const auto check = static_cast<Site>(record.site);
  if (check == Site::kLayoutsDiffer) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, ": `cached` is of layout ", record.expected, ", while rank ", record.peer,
        " dispatches with layout ", record.seen,
        "; all ranks must give the handle of the same dispatch (layouts are counted from the last "
        "failure on)"));
  }
  const auto value = static_cast<int64_t>(record.seen);
  const auto flat = static_cast<int>(record.index);
  const bool scatter = check == Site::kScatterIndexOutOfRange;
  const std::string where =
      absl::StrCat("rank ", rank, ": ", scatter ? "scatter_idx" : "topk_idx", " of token ",
                   flat / topk, ", k ", flat % topk, " is ", value);
  if (check == Site::kExpertTwice) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ", which the token has chosen before; a token's experts must differ"));
  }
  if (scatter) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "; it must be from 0 to ", record.expected - 1,
                     ", since this rank sends that expert ", record.expected, " rows"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where, "; it must be -1 (dropped) or from 0 to ", record.expected - 1));
}

}  // namespace octet
