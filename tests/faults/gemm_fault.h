// The faults of the kernels of grouped products in a test program, chosen at run time.
// tests/faults/gemm_seam.h says how it gets into them.
#ifndef OCTET_TESTS_FAULTS_GEMM_FAULT_H_
#define OCTET_TESTS_FAULTS_GEMM_FAULT_H_

namespace octet::faults {

enum class GemmFault {
  kNone,
  kCounterNotCleared,  // no block sets the counter of units back to zero
  kUnitLost,           // nobody computes the unit with number 1
  kUnitTwice,          // every unit is taken twice
  kRowPastTheEnd,      // outputs go one row too far
  kWrongScale,         // as if all columns of K had the first ones' scales
  kColumnsUnscaled,    // the same for the columns of the product
  kUpScaledAsGate,     // columns of up are multiplied by gate's scales
};

// Set by the host while no kernel runs; read by the kernels.
struct GemmPlant {
  GemmFault fault = GemmFault::kNone;
  int out_row_vecs = 0;  // vectors of a row of the output
};
inline GemmPlant planted_gemm;

}  // namespace octet::faults

#endif  // OCTET_TESTS_FAULTS_GEMM_FAULT_H_
