// Finds the tile shape that is the fastest for one grouped product.
#ifndef OCTET_TOOLS_MEASURE_TUNE_GEMM_TUNE_H_
#define OCTET_TOOLS_MEASURE_TUNE_GEMM_TUNE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tuning/tuning.h"
#include "octet/gemm_tiles.h"
#include "tools/measure/gemm/gemm_run.h"
#include "tools/measure/tune/tune.h"

namespace octet {

struct GemmTrial {
  GemmTiles tiles;
  double us = 0;  // median
};

struct GemmTuneResult {
  GemmTuningKey key;
  GemmTiles built_in = GemmTiles::kWide;  // the choice without an entry
  GemmTiles tuned = GemmTiles::kWide;     // the fastest found
  std::vector<GemmTrial> trials;          // of every tile shape
  TuneComparison comparison;              // no pairs if `tuned` is `built_in`
};

// Measures every tile shape with the product of the options, whose `tiles` and `dump` are ignored,
// as MeasureGemm does; then compares the fastest with the built-in choice, in turns, on other
// inputs. Makes the first GPU current. kInvalidArgument if no expert has rows, kDataLoss if results
// are wrong.
absl::StatusOr<GemmTuneResult> TuneGemm(const GemmOptions& options);

// Return the table of the trials, and what became of them.
std::string GemmTuneTable(const GemmTuneResult& result);
std::string GemmVerdict(const GemmTuneResult& result);

// Returns the product in words.
std::string ProductText(const GemmOptions& options);

// Returns the entry for the result. Its note says how it was measured.
GemmTuningEntry EntryOf(const GemmTuneResult& result, const GemmOptions& options);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TUNE_GEMM_TUNE_H_
