// The flags that describe a grouped product: of `octet gemm`, and with --operation=gemm.
#ifndef OCTET_TOOLS_COMMANDS_GEMM_FLAGS_H_
#define OCTET_TOOLS_COMMANDS_GEMM_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/commands/command_line.h"
#include "tools/measure/gemm/gemm_setup.h"
#include "tools/step/run_spec.h"

namespace octet {

// The values of flags that steps do not have.
struct GemmFlags {
  std::string rows = "8x64";
  int n = 4096;
  int k = 7168;
  bool fp8 = false;  // --dtype; otherwise the step's
  GemmFormat weights = GemmFormat::kSame;
  std::string epilogue = "none";
  std::vector<std::string> tiles = {"auto"};
  int samples = 256;
};

// Adds --dtype, which may be fp8 here, and --rows with what describes a routing.
void AddGemmDtypeFlag(CommandLine& line, GemmFlags& gemm, RunSpec& run);
void AddGemmRowsFlags(CommandLine& line, GemmFlags& gemm, RunSpec& run);
// Adds --weights, for weights whose elements are not those of the rows.
void AddGemmWeightsFlag(CommandLine& line, GemmFlags& gemm);
// Adds --n, --k and --epilogue; --tiles; and --samples.
void AddProductFlags(CommandLine& line, GemmFlags& gemm);
void AddTilesFlag(CommandLine& line, GemmFlags& gemm);

// Returns kInvalidArgument if --dtype is fp8, which steps do not have.
absl::Status RefuseFp8(const GemmFlags& gemm);

// Returns the number of rows of each expert, of 1 to 256 experts:
//   --rows=N --experts=E   E experts of N rows; one expert without --experts
//   --rows=512,0,8x64      as listed; --experts, if given, must agree
//   --rows=routing         what rank 0's experts receive of --ranks ranks, which have --tokens
//                          tokens each and share --experts experts; drawn as by `octet run` with
//                          the same flags
// Reads the file of --routing. Errors are kInvalidArgument, kNotFound or those of the file system,
// with one sentence.
absl::StatusOr<std::vector<int32_t>> ResolveGemmRows(const CommandLine& line, const GemmFlags& gemm,
                                                     const RunSpec& run);

// Returns the product that is asked for. Flags that a command does not have keep their defaults.
// Errors as above.
absl::StatusOr<GemmOptions> ResolveGemm(const CommandLine& line, const GemmFlags& gemm,
                                        const RunSpec& run);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_GEMM_FLAGS_H_
