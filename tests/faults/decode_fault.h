// The faults of the kernel of decode in a test program, chosen at run time.
// tests/faults/decode_seam.h says how they get into it.
#ifndef OCTET_TESTS_FAULTS_DECODE_FAULT_H_
#define OCTET_TESTS_FAULTS_DECODE_FAULT_H_

namespace octet::faults {

enum class DecodeFault {
  kNone,
  kNoLogitsBarrier,     // experts are chosen while logits are computed
  kNoProductsBarrier,   // down reads h while gate and up are computed
  kPartialsNotAwaited,  // partial rows are added whether they have come or not
  kStaleTokens,         // the tokens of the call before will do
  kFlagBeforeRows,      // tokens' flags are stored when other waves may not have stored their rows
  kExpertLeftOut,       // nobody computes the last chosen expert of a rank
  kRingOneSlotShort,    // a piece is read while its copy is in flight
  kTwoReplicasTakeAToken,  // every rank with a replica takes the tokens of all ranks
  kSumFromOwnRank,         // partial rows are added from the own rank on
};

// Set by the host while no kernel runs.
inline DecodeFault planted_decode = DecodeFault::kNone;

}  // namespace octet::faults

#endif  // OCTET_TESTS_FAULTS_DECODE_FAULT_H_
