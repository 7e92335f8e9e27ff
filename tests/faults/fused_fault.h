// The faults of the kernels of fused experts in a test program, chosen at run time.
// tests/faults/fused_seam.h says how they get into them.
#ifndef OCTET_TESTS_FAULTS_FUSED_FAULT_H_
#define OCTET_TESTS_FAULTS_FUSED_FAULT_H_

namespace octet::faults {

enum class FusedFault {
  kNone,
  kTileStartsEarly,     // a tile does not wait for its rows
  kGroupOffByOne,       // it waits for the groups before its own
  kCopiedBeforeHolder,  // a row is copied when it was announced, whether its holder has come or not
  kHolderOffByOne,      // it is copied from the row after its holder
  kBatchLost,           // nobody sends the choices with number 1
  kPassNotAwaited,      // outputs are returned whether their columns have been computed or not
  kPassOffByOne,        // they wait for the pass before theirs
  kTaskLost,            // nobody does the task of combine with number 1
  // Of the function planted_function:
  kNoRelease,  // its releases are left out
  kNoBarrier,  // its SyncBlockStores are left out
};

// Set by the host while no kernel runs.
inline FusedFault planted_fused = FusedFault::kNone;
inline const char* planted_function = "";

}  // namespace octet::faults

#endif  // OCTET_TESTS_FAULTS_FUSED_FAULT_H_
