// How messages describe a site: a wait or a check in a strategy's kernels. Each strategy lists its
// sites in StrategyInfo::sites.
#ifndef OCTET_KERNELS_EP_SITE_INFO_H_
#define OCTET_KERNELS_EP_SITE_INFO_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "octet/node_failure.h"

namespace octet {

// Which flags a wait is for.
enum class FlagKind {
  kOwn,             // the strategy's own
  kDispatchCredit,  // CallLayout::dispatch_credits
  kCombineCredit,   // CallLayout::combine_credits
  kCount,           // CallLayout::counts
};

struct SiteInfo {
  uint32_t number = 0;              // FailureRecord::site
  absl::string_view phase = {};     // the waiting phase: "dispatch-send"
  absl::string_view flag = {};      // what it waits for: "dispatch credit"
  absl::string_view table = {};     // title of a table of such flags; empty: there is none
  FlagKind flags = FlagKind::kOwn;  // the contents of that table
  bool by_rows = false;             // the table counts rows that have arrived; else shows epochs
  bool counted = false;             // a word holds a count beside the epoch
  // For a check of the caller's input: returns the refused argument, its value and what it must be.
  std::string (*refused)(const NodeFailure& failure, int topk) = nullptr;
};

// Return the sites of the waits that several strategies have.
// `number`: the strategy's own.
template <typename Site>
constexpr SiteInfo DispatchCreditSite(Site number) {
  return {.number = static_cast<uint32_t>(number),
          .phase = "dispatch-send",
          .flag = "dispatch credit",
          .table = "dispatch credits: epoch seen from each rank",
          .flags = FlagKind::kDispatchCredit};
}
template <typename Site>
constexpr SiteInfo CombineCreditSite(Site number) {
  return {.number = static_cast<uint32_t>(number),
          .phase = "combine-send",
          .flag = "combine credit",
          .table = "combine credits: epoch seen from each rank",
          .flags = FlagKind::kCombineCredit};
}
template <typename Site>
constexpr SiteInfo CountSite(Site number) {
  return {.number = static_cast<uint32_t>(number),
          .phase = "dispatch-receive",
          .flag = "row count",
          .table = "row counts: epoch seen from each rank",
          .flags = FlagKind::kCount,
          .counted = true};
}

template <typename Site>
constexpr SiteInfo DispatchPacketSite(Site number) {
  return {.number = static_cast<uint32_t>(number),
          .phase = "dispatch-receive",
          .flag = "packet flag of slot",
          .table = "dispatched tokens: arrived / announced by each rank",
          .by_rows = true,
          .counted = true};
}
template <typename Site>
constexpr SiteInfo CombineRowSite(Site number) {
  return {.number = static_cast<uint32_t>(number),
          .phase = "combine-receive",
          .flag = "row flag of token",
          .table = "combined rows: arrived / to be returned by each rank",
          .by_rows = true};
}
template <typename Site>
constexpr SiteInfo CombineSourceSite(Site number) {
  return {.number = static_cast<uint32_t>(number),
          .phase = "combine-receive",
          .flag = "source flag",
          .table = "combine source flags: epoch seen from each rank"};
}

// A rank's wait for flags of a peer.
struct FlagWait {
  int rank = 0;
  int peer = 0;
  uint32_t site = 0;   // SiteInfo::number
  uint64_t epoch = 0;  // that it waits for
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_SITE_INFO_H_
