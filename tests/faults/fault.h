// What is wrong with the kernels of a test program, chosen at run time. tests/faults/seam.h says
// how it gets into them.
#ifndef OCTET_TESTS_FAULTS_FAULT_H_
#define OCTET_TESTS_FAULTS_FAULT_H_

#include <cstddef>

#include "octet/peers.h"

namespace octet::faults {

enum class Fault {
  kNone,
  kMissingRelease,     // flags are stored relaxed, fences before them left out
  kMissingAcquire,     // nothing after a poll
  kDeviceScope,        // releases at the scope of the GPU instead of the node's
  kFlagBeforePayload,  // rows are stored after the flag that announces them
  kMissingGridSync,    // this_grid().sync() does nothing
  kNotLastBlock,       // every block takes itself for the last, which a grid barrier would prevent
  kBitInsteadOfEpoch,  // flags alternate between 0 and 1
  kCounterNotCleared,  // nobody sets counters back to zero
  kOffByOneSlot,       // rows go one slot too far
  kRowPastTheEnd,      // rows go past the end of the peer's heap
  kPacketPastTheEnd,   // so do a row's origin and index, by plain stores
  kFlagNobodySets,     // flags of tokens are waited for, but not stored
  kCreditIgnored,      // nobody waits until peers have consumed what they received before
  kOneParity,          // counts of all calls go to the same words
  // high_throughput's own:
  kShareNotAwaited,  // columns are summed before all blocks have counted
  kShareNotTold,     // one block does not say what it has counted
  // low_latency's own:
  kCountTooSmall,  // ranks and experts are told of one token less than comes
  kWrongSource,    // combine takes the packets of another source
  kScaleOfZeros,   // groups of zeros get a scale of zero
  kDropIsAwaited,  // combine waits for dropped choices, too
  // Where ranks may be masked:
  kNotDoneAgain,        // what was done before a rank was masked stays as it is
  kMaskForgotten,       // a mask is for one call only
  kMaskedIsAdded,       // combine adds what masked ranks send
  kMaskedIsSentTo,      // ranks send to those that they have masked
  kLeftOutNotSet,       // nobody is told whom a call goes without
  kBegunIgnored,        // combine waits for rows only, not for those who send it none
  kCreditsTakeAllTime,  // credits are waited for as long as data
  kTimeForEachWait,     // words that are waited for one after the other have the whole time each
  kSharedPlaces,        // rows of different ranks come home to the same places
  kUnmaskGoesOn,        // unmasked ranks go on with the epochs that they were at
};

// Set by the host while no kernel runs; read by the kernels of all ranks.
struct Plant {
  Fault fault = Fault::kNone;
  // Where kernels write into peers' memory, and what the shape of the call is.
  device::PeerBases heaps = {};
  device::PeerBases row_heaps = {};  // of cached memory
  size_t heap_bytes = 0;
  size_t row_heap_bytes = 0;
  int row_vecs = 0;
  int send_blocks = 0;
};
inline Plant planted;

}  // namespace octet::faults

#endif  // OCTET_TESTS_FAULTS_FAULT_H_
