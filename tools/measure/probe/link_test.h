// Measures what the links between the GPUs carry when idle otherwise: the ceilings of bandwidth, by
// who moves the bytes, from which rank to which, with how many blocks and in rows of which size.
#ifndef OCTET_TOOLS_MEASURE_PROBE_LINK_TEST_H_
#define OCTET_TOOLS_MEASURE_PROBE_LINK_TEST_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "runtime/memory/device_memory.h"
#include "tools/measure/probe/ceilings_kernels.h"
#include "tools/measure/step/device_timer.h"

namespace octet {

enum class Mover {
  kStores,      // waves store into peers
  kLoads,       // waves load from peers
  kBulk,        // the waves' copy unit stores into peers from shared memory (bulk_copy.h)
  kCopyEngine,  // hipMemcpyPeerAsync, one copy for each peer
};
absl::Span<const EnumEntry<Mover>> EnumTable(Mover);

struct LinkLoad {
  Mover mover = Mover::kStores;
  // From one rank to another or, with -1 for both, from each rank to all others at once.
  int from = -1;
  int to = -1;
  int blocks = 0;     // 0: one for each compute unit; copy engines ignore it
  int row_bytes = 0;  // a multiple of 16; 0: kRowBytes
  int64_t bytes = 0;  // that each rank sends, or a little less; 0: LinkTest::Create's
};

// The row size by which rates are usually compared: 7168 elements of 16 bits.
inline constexpr int kRowBytes = 14'336;

class LinkTest {
 public:
  // Allocates memory for `bytes` that each rank sends (0: enough to make launches look small). Not
  // during Run.
  static absl::StatusOr<std::unique_ptr<LinkTest>> Create(Node& node, int64_t bytes = 0);

  struct Result {
    int64_t bytes = 0;  // that the busiest rank sent over links
    double us = 0;      // device time of the slowest rank, from a barrier of the GPUs
  };
  // Runs `load`. Returns kInvalidArgument for an impossible load. Not during Run.
  absl::StatusOr<Result> Run(const LinkLoad& load);

  // Runs `load`, and returns kDataLoss unless every byte has arrived at the right place.
  absl::Status Verify(const LinkLoad& load);

  // Returns the GB/s of the median of some runs.
  absl::StatusOr<double> Gbps(const LinkLoad& load);

 private:
  LinkTest(Node& node, int64_t bytes, DeviceTimer timer)
      : node_(node), bytes_(bytes), timer_(std::move(timer)) {}
  absl::Status Init();
  absl::Status Check(const LinkLoad& load) const;
  bool Sends(const LinkLoad& load, int rank, int peer) const;
  int64_t RowsPerPeer(const LinkLoad& load) const;
  // Return a rank's own rows for a peer, and the memory where a rank's rows arrive.
  char* Source(int rank, int peer, int64_t rows, int64_t row_bytes) const;
  char* Target(int rank, int source, int64_t rows, int64_t row_bytes) const;
  absl::Status Enqueue(Rank& rank, const LinkLoad& load);

  Node& node_;
  const int64_t bytes_;
  DeviceTimer timer_;
  std::unique_ptr<SymmetricHeap> heap_;
  SymmetricPtr<char> sources_;
  SymmetricPtr<char> targets_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_LINK_TEST_H_
