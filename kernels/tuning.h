// A table of choices that were measured to be faster than the built-in ones, by GPU and kind of
// call: the launch shapes of a strategy, and the strategy for Strategy::kAuto. `octet tune`
// measures and writes the entries:
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
// "format", "received" and "row_copies" may be left out: "same", "packed" and "auto". The launch
// shape of an entry applies to calls of its strategy, whether the caller or kAuto chose it.
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

// Returns the fields that `strategy` uses.
absl::Span<const TuningField> TuningFieldsOf(Strategy strategy);

// The values from first to last, both included.
struct TuningRange {
  int64_t first = 0;
  int64_t last = 0;
  bool Contains(int64_t value) const { return first <= value && value <= last; }
  bool operator==(const TuningRange&) const = default;
};

// The calls that a tuning is for.
struct TuningKey {
  std::string platform;  // as in Topology
  std::string gpu;       // GpuInfo::name of rank 0's GPU
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
  Tuning tuning = {};                 // every field that the strategy uses
  Strategy chosen = Strategy::kAuto;  // if key.strategy is kAuto: the strategy to take
  std::string note = {};              // for readers
};

// Returns the key of the calls that are like `config`'s: M · K and the bytes of a row lie between
// the same powers of two, and rows have the same format in transit and the same received layout.
TuningKey TuningKeyOf(const Topology& topology, int num_ranks, const EpConfig& config);

class TuningTable {
 public:
  TuningTable() = default;

  // Parses a table. `origin` is the text's name in errors. Returns kInvalidArgument with the entry
  // and the field that is missing, unknown or wrong.
  static absl::StatusOr<TuningTable> Parse(absl::string_view json, absl::string_view origin);
  // Parses the file at `path`. Errors name it.
  static absl::StatusOr<TuningTable> Read(const std::string& path);
  // Returns the table of the environment variable OCTET_TUNING, a file, or "none" for an empty
  // table. Without the variable, returns the table that comes with the library. A file is parsed
  // once, and again only if its size or time has changed. Thread-safe.
  static absl::StatusOr<std::shared_ptr<const TuningTable>> Default();

  // The origin of the table, for messages.
  const std::string& origin() const { return origin_; }
  const std::vector<TuningEntry>& entries() const { return entries_; }

  // Returns the tuning for calls like `config`'s, from the first entry that matches them.
  std::optional<Tuning> Find(const Topology& topology, int num_ranks, const EpConfig& config) const;
  // Likewise for `config` with the strategy kAuto: returns the strategy to take.
  std::optional<Strategy> FindStrategy(const Topology& topology, int num_ranks,
                                       const EpConfig& config) const;
  // Returns the strategies of all entries for `config`, of any GPU.
  std::vector<Strategy> StrategiesFor(int num_ranks, const EpConfig& config) const;
  // Returns the largest row_parts of any GPU's entry for such calls; 0 if there is none.
  int MostRowParts(int num_ranks, const EpConfig& config) const;

  // Adds an entry, or replaces the one with the same key.
  void Set(const TuningEntry& entry);
  void Remove(const TuningKey& key);
  std::string ToJson() const;

 private:
  // Returns nullptr if there is none.
  const TuningEntry* FindEntry(const Topology& topology, int num_ranks,
                               const EpConfig& config) const;

  std::string origin_ = "no tuning";
  std::vector<TuningEntry> entries_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_TUNING_H_
