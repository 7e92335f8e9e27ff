// What has been measured to be faster than the built-in choices, by GPU and by what a call is like:
// launch shapes of a strategy, and which strategy Strategy::kAuto should be. `octet tune` measures
// and writes them:
//
//   {"schema": 1,
//    "entries": [
//      {"platform": "nvidia", "gpu": "NVIDIA H200", "ranks": 8, "strategy": "direct",
//       "rows": [1024, 2047], "row_bytes": [8192, 16383], "format": "same", "received": "packed",
//       "blocks": 132, "send_blocks": 66, "waves": 8, "row_parts": 2,
//       "note": "how it was measured; only for readers"},
//      {..., "strategy": "high_throughput", ...,
//       "blocks": 132, "waves": 16, "send_waves": 4, "combine_send_waves": 12, "row_parts": 1,
//       "row_copies": "vectors"},
//      {..., "strategy": "auto", ..., "chosen": "low_latency"}]}
//
// "format", "received" and "row_copies" may be left out: "same", "packed" and "auto".
// The launch shape of an entry is used for calls of its strategy, whether it was named or chosen.
#ifndef OCTET_KERNELS_TUNING_H_
#define OCTET_KERNELS_TUNING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/tuning_field.h"
#include "octet/ep_config.h"
#include "octet/topology.h"

namespace octet {

// Those that `strategy` has a use for.
absl::Span<const TuningField> TuningFieldsOf(Strategy strategy);

// From first to last, both included.
struct TuningRange {
  int64_t first = 0;
  int64_t last = 0;
  bool Contains(int64_t value) const { return first <= value && value <= last; }
  bool operator==(const TuningRange&) const = default;
};

// What a tuning is for: calls that are alike.
struct TuningKey {
  std::string platform;  // as in Topology
  std::string gpu;       // GpuInfo::name of rank 0's
  int num_ranks = 0;
  Strategy strategy = Strategy::kDirect;
  TuningRange rows;       // M · K
  TuningRange row_bytes;  // H elements of the dtype
  DispatchFormat format = DispatchFormat::kSame;
  Output received = Output::kPackedExperts;
  bool operator==(const TuningKey&) const = default;
};

struct TuningEntry {
  TuningKey key;
  Tuning tuning = {};                 // every field that the strategy has a use for
  Strategy chosen = Strategy::kAuto;  // for the strategy kAuto: what that is
  std::string note = {};              // for readers
};

// The calls that are alike to `config`'s: M · K and the bytes of a row between the same powers of
// two, and the same travels and is received in the same layout.
TuningKey TuningKeyOf(const Topology& topology, int num_ranks, const EpConfig& config);

class TuningTable {
 public:
  TuningTable() = default;

  // `origin` is what errors call the text. kInvalidArgument with the entry and the field that is
  // missing, unknown, or not what it must be.
  static absl::StatusOr<TuningTable> Parse(absl::string_view json, absl::string_view origin);
  // The file at `path`. Errors name it.
  static absl::StatusOr<TuningTable> Read(const std::string& path);
  // That of the environment's OCTET_TUNING: a file, or "none" for an empty table. Without it the
  // one that comes with the library. Parsed once: again only if the file has changed since, by its
  // size or time. Any thread.
  static absl::StatusOr<std::shared_ptr<const TuningTable>> Default();

  // Where it is from, for messages.
  const std::string& origin() const { return origin_; }
  const std::vector<TuningEntry>& entries() const { return entries_; }

  // For calls like `config`'s; the first entry that says something about them.
  std::optional<Tuning> Find(const Topology& topology, int num_ranks, const EpConfig& config) const;
  // Likewise for `config` with the strategy kAuto: which one to take.
  std::optional<Strategy> FindStrategy(const Topology& topology, int num_ranks,
                                       const EpConfig& config) const;
  // All that there are for it, of any GPU.
  std::vector<Strategy> StrategiesFor(int num_ranks, const EpConfig& config) const;
  // The most row_parts of any GPU's entry for such calls; 0 if there is none.
  int MostRowParts(int num_ranks, const EpConfig& config) const;

  // In the place of what there is for the same key.
  void Set(const TuningEntry& entry);
  void Remove(const TuningKey& key);
  std::string ToJson() const;

 private:
  // nullptr: none.
  const TuningEntry* FindEntry(const Topology& topology, int num_ranks,
                               const EpConfig& config) const;

  std::string origin_ = "no tuning";
  std::vector<TuningEntry> entries_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_TUNING_H_
