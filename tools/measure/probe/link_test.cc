#include "tools/measure/probe/link_test.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "runtime/gpu/gpu_status.h"
#include "tools/support/statistics.h"

namespace octet {
namespace {

constexpr int kLinkRepetitions = 15;
constexpr int kVecBytes = 16;

// Takes much longer than a launch on a GPU, and not long on a CPU.
constexpr int64_t kBytes = int64_t{100} << 20;
constexpr int64_t kEmulatedBytes = int64_t{1} << 20;

}  // namespace

absl::Span<const EnumEntry<Mover>> EnumTable(Mover) {
  static constexpr EnumEntry<Mover> kTable[] = {{Mover::kStores, "stores"},
                                                {Mover::kLoads, "loads"},
                                                {Mover::kBulk, "bulk"},
                                                {Mover::kCopyEngine, "copy_engine"}};
  return kTable;
}

absl::StatusOr<std::unique_ptr<LinkTest>> LinkTest::Create(Node& node, int64_t bytes) {
  if (bytes == 0) bytes = node.topology().emulated() ? kEmulatedBytes : kBytes;
  OCTET_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::Create(node));
  auto test = absl::WrapUnique(new LinkTest(node, bytes, std::move(timer)));
  OCTET_RETURN_IF_ERROR(test->Init());
  return test;
}

absl::Status LinkTest::Init() {
  const auto bytes = static_cast<size_t>(bytes_);
  OCTET_ASSIGN_OR_RETURN(heap_,
                         SymmetricHeap::Create(node_, 2 * (bytes + SymmetricHeap::kAlignment)));
  OCTET_ASSIGN_OR_RETURN(sources_, heap_->Allocate<char>(bytes));
  OCTET_ASSIGN_OR_RETURN(targets_, heap_->Allocate<char>(bytes));
  // No two ranks have the same bytes.
  return node_.Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_GPU_ERROR(LoadLinkKernels());
    return OCTET_GPU(hipMemsetAsync(sources_.Mine(heap_->peers(rank.rank())), rank.rank() + 1,
                                    bytes, rank.stream()));
  });
}

absl::Status LinkTest::Check(const LinkLoad& load) const {
  const int ranks = node_.num_ranks();
  const bool all = load.from == -1 && load.to == -1;
  const bool pair = load.from >= 0 && load.from < ranks && load.to >= 0 && load.to < ranks &&
                    load.from != load.to;
  if ((!all && !pair) || ranks < 2) {
    return absl::InvalidArgumentError(absl::StrCat("there is no link from rank ", load.from,
                                                   " to rank ", load.to, " of ", ranks));
  }
  if (load.row_bytes % kVecBytes != 0 || load.bytes > bytes_ || RowsPerPeer(load) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", load.row_bytes, " bytes in ",
                                                   load.bytes, " bytes of at most ", bytes_));
  }
  return absl::OkStatus();
}

bool LinkTest::Sends(const LinkLoad& load, int rank, int peer) const {
  return load.from == -1 ? rank != peer : load.from == rank && load.to == peer;
}

int64_t LinkTest::RowsPerPeer(const LinkLoad& load) const {
  const int peers = load.from == -1 ? node_.num_ranks() - 1 : 1;
  return (load.bytes == 0 ? bytes_ : load.bytes) /
         (load.row_bytes == 0 ? kRowBytes : load.row_bytes) / peers;
}

char* LinkTest::Source(int rank, int peer, int64_t rows, int64_t row_bytes) const {
  const int slot = peer < rank ? peer : peer - 1;  // a rank has nothing for itself
  return sources_.On(heap_->peers(rank), rank) + slot * rows * row_bytes;
}

char* LinkTest::Target(int rank, int source, int64_t rows, int64_t row_bytes) const {
  const int slot = source < rank ? source : source - 1;
  return targets_.On(heap_->peers(rank), rank) + slot * rows * row_bytes;
}

absl::Status LinkTest::Enqueue(Rank& rank, const LinkLoad& load) {
  const int me = rank.rank();
  const int ranks = rank.num_ranks();
  const std::vector<GpuInfo>& gpus = node_.topology().gpus;
  const int64_t rows = RowsPerPeer(load);
  const int row_bytes = load.row_bytes == 0 ? kRowBytes : load.row_bytes;
  // The rows of a single pair lie where those of the first peer lie otherwise.
  const bool pair = load.from != -1;
  MoveRowsParams params = {};
  params.rows_per_pair = static_cast<int>(rows);
  params.row_bytes = row_bytes;
  // Each rank begins with its right neighbour, so that no GPU is the destination of all others at
  // once.
  for (int i = 1; i < ranks; ++i) {
    const int peer = (me + i) % ranks;
    const bool loads = load.mover == Mover::kLoads;
    const int source = loads ? peer : me;
    const int target = loads ? me : peer;
    if (!Sends(load, source, target)) continue;
    const auto n = static_cast<size_t>(params.num_pairs++);
    params.from[n] = Source(source, pair ? (source == 0 ? 1 : 0) : target, rows, row_bytes);
    params.to[n] = Target(target, pair ? (target == 0 ? 1 : 0) : source, rows, row_bytes);
    if (load.mover == Mover::kCopyEngine) {
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpyPeerAsync(params.to[n], gpus[static_cast<size_t>(target)].device, params.from[n],
                             gpus[static_cast<size_t>(source)].device,
                             static_cast<size_t>(rows * row_bytes), rank.stream()));
    }
  }
  if (params.num_pairs == 0 || load.mover == Mover::kCopyEngine) return absl::OkStatus();
  const GpuInfo& gpu = gpus[static_cast<size_t>(me)];
  const int blocks = load.blocks > 0 ? load.blocks : gpu.num_compute_units;
  return load.mover == Mover::kBulk
             ? OCTET_GPU(LaunchMoveRowsInBulk(params, blocks, gpu.wave_size, rank.stream()))
             : OCTET_GPU(LaunchMoveRows(params, blocks, gpu.wave_size, rank.stream()));
}

absl::StatusOr<LinkTest::Result> LinkTest::Run(const LinkLoad& load) {
  OCTET_RETURN_IF_ERROR(Check(load));
  Result result;
  OCTET_ASSIGN_OR_RETURN(result.us, timer_.Time([&](Rank& rank) { return Enqueue(rank, load); }));
  result.bytes = RowsPerPeer(load) * (load.row_bytes == 0 ? kRowBytes : load.row_bytes) *
                 (load.from == -1 ? node_.num_ranks() - 1 : 1);
  return result;
}

absl::Status LinkTest::Verify(const LinkLoad& load) {
  OCTET_RETURN_IF_ERROR(Check(load));
  const auto all = static_cast<size_t>(bytes_);
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) {
    return OCTET_GPU(
        hipMemsetAsync(targets_.Mine(heap_->peers(rank.rank())), 0, all, rank.stream()));
  }));
  OCTET_RETURN_IF_ERROR(Run(load).status());
  const int64_t bytes = RowsPerPeer(load) * (load.row_bytes == 0 ? kRowBytes : load.row_bytes);
  return node_.Run([&](Rank& rank) -> absl::Status {
    std::vector<char> got(all);
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(got.data(), targets_.Mine(heap_->peers(rank.rank())),
                                             all, hipMemcpyDeviceToHost, rank.stream()));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    auto begin = got.begin();
    for (int source = 0; source < rank.num_ranks(); ++source) {
      if (!Sends(load, source, rank.rank())) continue;
      const auto end = begin + bytes;
      const auto wrong = std::find_if(begin, end, [&](char byte) { return byte != source + 1; });
      if (wrong != end) {
        return absl::DataLossError(absl::StrCat(EnumName(load.mover), ": byte ", wrong - begin,
                                                " of ", bytes, " from rank ", source, " to rank ",
                                                rank.rank(), " is ", static_cast<int>(*wrong)));
      }
      begin = end;
    }
    if (std::any_of(begin, got.end(), [](char byte) { return byte != 0; })) {
      return absl::DataLossError(absl::StrCat(EnumName(load.mover), ": rank ", rank.rank(),
                                              " got more than was sent to it"));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<double> LinkTest::Gbps(const LinkLoad& load) {
  std::vector<double> us;
  int64_t bytes = 0;
  for (int i = 0; i < kLinkRepetitions; ++i) {
    OCTET_ASSIGN_OR_RETURN(const Result result, Run(load));
    us.push_back(result.us);
    bytes = result.bytes;
  }
  return octet::Gbps(bytes, Summarize(std::move(us)).median);
}

}  // namespace octet
