#include "kernels/ep/base/flag_report.h"

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/base/epoch_numbers.h"
#include "kernels/ep/device/site.h"
#include "octet/node_failure.h"
#include "runtime/device/epoch.h"
#include "runtime/failure/failure.h"

namespace octet {
namespace {

// Returns "topk_idx of token 3, k 1 is 4711".
std::string RefusedChoice(const NodeFailure& failure, int topk) {
  const auto flat = static_cast<int>(failure.index);
  return absl::StrCat("topk_idx of token ", flat / topk, ", k ", flat % topk, " is ",
                      static_cast<int64_t>(failure.seen));
}

std::string RefusedExpert(const NodeFailure& failure, int topk) {
  return absl::StrCat(RefusedChoice(failure, topk), "; it must be -1 (dropped) or from 0 to ",
                      failure.expected - 1);
}

std::string RefusedTwice(const NodeFailure& failure, int topk) {
  // The upper halves of small 64-bit numbers look like this.
  const bool wide = failure.index % 2 == 1 && failure.seen == 0;
  return absl::StrCat(RefusedChoice(failure, topk),
                      ", which the token has chosen before; a token's experts must differ",
                      wide ? " (are these 64-bit ids? topk_idx is int32_t)" : "");
}

constexpr std::array<SiteInfo, 2> kRoutingChecks = {
    {{.number = static_cast<uint32_t>(RoutingCheck::kExpertOutOfRange), .refused = RefusedExpert},
     {.number = static_cast<uint32_t>(RoutingCheck::kExpertTwice), .refused = RefusedTwice}}};

constexpr SiteInfo kUnknown = {.phase = "kernel"};

// Returns the epoch in a word at that site.
uint64_t EpochIn(const SiteInfo& site, uint64_t word) {
  return site.counted ? device::EpochOf(word) : word;
}

FlagTable::Cell CellOf(const SiteInfo& site, absl::Span<const uint64_t> words, uint64_t epoch) {
  if (site.by_rows) {
    const auto arrived =
        absl::c_count_if(words, [&](uint64_t word) { return EpochIn(site, word) >= epoch; });
    return {absl::StrCat(arrived, "/", words.size()), static_cast<size_t>(arrived) < words.size()};
  }
  if (words.empty()) return {"?", false};
  const uint64_t seen = EpochIn(site, *absl::c_min_element(words));
  return {absl::StrCat(CallOf(seen)), seen < epoch};
}

}  // namespace

const SiteInfo& FlagReport::InfoOf(uint32_t number) const {
  const auto is = [number](const SiteInfo& site) { return site.number == number; };
  if (const auto own = absl::c_find_if(sites_, is); own != sites_.end()) return *own;
  const auto* const check = absl::c_find_if(kRoutingChecks, is);
  return check != kRoutingChecks.end() ? *check : kUnknown;
}

absl::Status FlagReport::Describe(int rank, const device::FailureRecord& record) const {
  const SiteInfo& site = InfoOf(record.site);
  const std::string flag = &site == &kUnknown
                               ? absl::StrCat("flag of unknown site ", record.site, ", index")
                               : std::string(site.flag);
  NodeFailure failure = RecordedFailure(rank, record, site.phase, flag);
  if (failure.kind == NodeFailure::Kind::kInput) {
    return WithFailure(failure, absl::InvalidArgumentError(
                                    site.refused != nullptr
                                        ? site.refused(failure, topk_)
                                        : absl::StrCat("check ", record.site, " refused element ",
                                                       record.index, " of the input: expected ",
                                                       record.expected, ", seen ", record.seen)));
  }
  failure.expected = CallOf(EpochIn(site, record.expected));
  failure.seen = CallOf(EpochIn(site, record.seen));
  return DeadlineStatus(failure);
}

std::vector<FlagTable> FlagReport::Tables(
    absl::Span<const device::FailureRecord> waits,
    absl::FunctionRef<std::vector<uint64_t>(const SiteInfo&, const FlagWait&)> words) const {
  const auto num_ranks = static_cast<int>(waits.size());
  std::map<uint32_t, FlagTable> tables;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const device::FailureRecord& wait = waits[static_cast<size_t>(rank)];
    const SiteInfo& site = InfoOf(wait.site);
    if (wait.kind == device::FailureKind::kNone || site.table.empty()) continue;
    const uint64_t epoch = EpochIn(site, wait.expected);
    FlagTable& table = tables[wait.site];
    table.title = std::string(site.table);
    FlagTable::Row row;
    row.rank = rank;
    if (!site.by_rows) row.expected = absl::StrCat(CallOf(epoch));
    for (int peer = 0; peer < num_ranks; ++peer) {
      const FlagWait from_peer = {.rank = rank, .peer = peer, .site = wait.site, .epoch = epoch};
      row.peers.push_back(CellOf(site, words(site, from_peer), epoch));
    }
    table.rows.push_back(std::move(row));
  }
  std::vector<FlagTable> result;
  for (auto& [number, table] : tables) result.push_back(std::move(table));
  return result;
}

}  // namespace octet
