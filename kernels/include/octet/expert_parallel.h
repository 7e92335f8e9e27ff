// Dispatch and combine of a Mixture-of-Experts layer over the GPUs of one node or of several.
//
//   absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 8});
//   auto ep = ExpertParallel::Create(**node, config);
//   (*node)->Run([&](Rank& rank) -> absl::Status {
//     absl::StatusOr<Received> received = (*ep)->Dispatch(rank, {.x = x, ...});
//     if (!received.ok()) return received.status();
//     RunMyExperts(rank.stream(), *received);                     // received->x -> out
//     return (*ep)->Combine(rank, received->handle, {.expert_out = out, .y = y});
//   });
//
// Over the nodes of a World (octet/world.h) the program is the same, on `world` in place of `node`:
// a token crosses to a node once, on the rail of its rank, and is distributed there like the node's
// own tokens.
//
// Notation in the comments: R ranks, E experts, L = E/R local experts, T tokens of a rank, M most
// tokens of a rank, K choices of a token, H elements of a row; of several nodes, P nodes and R
// ranks over all of them.
#ifndef OCTET_EXPERT_PARALLEL_H_
#define OCTET_EXPERT_PARALLEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/node.h"
#include "octet/received.h"
#include "octet/symmetric_heap.h"
#include "octet/trace.h"

namespace octet {

// A rank's counters since Create or ResetStatistics.
struct EpStatistics {
  std::vector<int64_t> expert_rows;  // [L] rows received by each local expert: ExpertLoads::rows
  // [R] How long the rank's calls waited for data from each rank: the sum, over its calls, of the
  // longest wait of any wave for data that had not arrived when the wave first looked. The vectors
  // of all ranks are the rows of an R x R matrix.
  std::vector<absl::Duration> dispatch_waits;
  std::vector<absl::Duration> combine_waits;
};

// The rows that have come to each expert, from all ranks. With a placement, those of its replicas
// together.
struct ExpertLoads {
  std::vector<int64_t> rows;    // [E] since Create or ResetStatistics
  std::vector<int64_t> window;  // [E] of the last LoadOptions::window dispatches; of the last one
                                // if that is 0. A failure of the node and Unmask empty it
};

// Arguments of a dispatch that only high_throughput has. Name that strategy to use them:
// Strategy::kAuto refuses them unless no other strategy supports the configuration.
struct HighThroughputArgs {
  // DispatchFormat::kFp8: [T][scale_words] 4-byte words, moved along with the rows.
  const void* x_scales = nullptr;
  // [T][K] or null: the position of each choice among the rows that this rank sends to that expert,
  // from 0 to their number - 1, all different; ignored where the id is -1. Null: in token order.
  // The device reports an index that is out of range; equal indices lose rows.
  const int32_t* scatter_idx = nullptr;
  // The handle of an earlier dispatch, whose layout this dispatch reuses: it counts and exchanges
  // nothing, and rows go where that dispatch's went. All ranks pass the handle of the same call; if
  // their layouts differ, the device reports kInvalidArgument with the two ranks and layouts.
  // num_tokens must be that dispatch's; topk_idx and scatter_idx are ignored. The handle must be
  // among the last kept_layouts dispatches that made a layout.
  const DispatchHandle* cached = nullptr;

  bool operator==(const HighThroughputArgs&) const = default;
};

// All pointers are memory of the rank's own GPU, 16-byte aligned, owned by the caller.
struct DispatchArgs {
  const void* x = nullptr;              // [T] rows: [H] of config.dtype, unless
                                        // config.dispatch_format says otherwise
  const int32_t* topk_idx = nullptr;    // [T][K], experts 0 .. E-1, distinct within a token. -1
                                        // drops the choice: it is not sent and adds nothing
  const float* topk_weights = nullptr;  // [T][K]; ignored where the id is -1. Null: all are 1
  int num_tokens = 0;                   // T, 0 .. M; may differ from rank to rank
  HighThroughputArgs high_throughput = {};
};

// Arguments of a combine that only high_throughput has; Strategy::kAuto as in HighThroughputArgs.
struct HighThroughputCombineArgs {
  // The sums are unweighted, as if all of topk_weights were 1: the caller has multiplied the
  // weights (HighThroughputReceived::row_weights) into expert_out. All ranks say the same.
  bool unweighted = false;

  bool operator==(const HighThroughputCombineArgs&) const = default;
};

struct CombineArgs {
  // Room for EpConfig::expert_out_rows(R) rows, [H] of config.dtype each: the output of each row in
  // expert order, at that row's position (with Duplicates::kIndex in the index, otherwise in
  // Received::x). May be Received::x itself if its rows have that size; CombineMethod::kPull says
  // what Combine then leaves in it. kDeduplicated: one output for each row of Received::x, which
  // the caller has weighted and summed over this rank's experts; Combine adds it unchanged.
  const void* expert_out = nullptr;
  // [T][H] of config.dtype, all rows are written. Overlaps neither expert_out nor bias.
  void* y = nullptr;
  // [H] of config.dtype, added to every token's sum in float32, last, before it is rounded; 16-byte
  // aligned. nullptr: none.
  const void* bias = nullptr;
  HighThroughputCombineArgs high_throughput = {};
};

// The bytes of one rank's call, as the strategy's protocol sends them.
struct Traffic {
  int64_t rows = 0;           // rows sent, to this rank itself included
  int64_t logical_bytes = 0;  // payload of those rows
  int64_t wire_bytes = 0;     // everything stored into other GPUs: payload, metadata, flags, counts
};

// How many rows cross to another node.
enum class RailRows {
  kAuto,  // kBlocks if the strategy within a node is low_latency, otherwise kCounted
  // M for each node, unused ones marked. The host waits for nothing, so that calls can be captured
  // where the rail's exchange can be.
  kBlocks,
  // As many as there are: counts cross first, and Dispatch waits on the host for them.
  kCounted,
};

absl::Span<const EnumEntry<RailRows>> EnumTable(RailRows);  // names: octet/enum_names.h

// How calls over several nodes use the rails. All nodes must give the same.
struct RailOptions {
  RailRows rows = RailRows::kAuto;
  // Rails beside links: rows cross in chunks of so many tokens of a rank. In a dispatch, the first
  // tokens are distributed within the node while later chunks cross. In a combine, the chunks
  // return from the last to the first, while the combine within the node makes the rest, and the
  // rank's own rows at the end. Pays where rails take about as long as links
  // (docs/several_nodes.md). Kernels within the node then leave compute units to the rails. 0, or M
  // and more: all rows cross at once, before any is distributed and after all are made. Otherwise
  // at least M / 32.
  int chunk_tokens = 0;
  // EpConfig::combine_order within a node.
  CombineOrder intranode_order = CombineOrder::kAuto;

  bool operator==(const RailOptions&) const = default;
};

struct ExpertParallelOptions {
  // Holds the receive buffers; must have HeapBytes() left and outlive the ExpertParallel. nullptr:
  // the ExpertParallel makes a heap of its own, of exactly that size.
  SymmetricHeap* heap = nullptr;
  // Kernels record their events here; must outlive the ExpertParallel. nullptr: not traced.
  TraceCollector* trace = nullptr;
  // If config.tuning is empty, use the launch shape that was measured to be fast for such calls on
  // this GPU, if there is one; likewise for Strategy::kAuto (docs/using.md). false: use the
  // strategy's default shape, and the built-in rules.
  bool use_measured_tuning = true;
  // Put into failures and errors of its calls, "rank 3: 'layer 7': dispatch-receive waited ...",
  // and into NodeFailure::object. Any text of one line; need not be unique. Empty: none.
  std::string name = {};
  RailOptions rails = {};  // ignored within a node
};

class EpCalls;  // kernels/ep/ep_calls.h

class ExpertParallel final {
 public:
  // Allocates everything that the calls need, and loads all kernels on every rank. Not during
  // Node::Run. A node may be destroyed first; a call on a rank of another node is refused
  // (kFailedPrecondition).
  //   kInvalidArgument    Validate(config), or a grid that cannot be resident, or the tuning that
  //                       OCTET_TUNING names is malformed
  //   kResourceExhausted  with the bytes that are needed and that are left
  //
  // Over several nodes: collective (octet/domain.h). Returns the calls of the ranks of this
  // process, which are made inside World::Run; the world must outlive them. `config` is that of all
  // nodes: num_experts over all of them, of which rank r of node n has those from (n·R/P + r)·L on,
  // and combine_order kAuto or kPerNode. Errors are the same on all processes, those of one with
  // "node n: ", and
  //   kInvalidArgument    the nodes' arguments differ (both named), or the choices made for them,
  //                       which can depend on what was measured on a node (docs/using.md); what the
  //                       strategy refuses for E/P experts and up to P·M tokens of a rank;
  //                       FailurePolicy::kMask
  // Needs the component `net` (docs/several_nodes.md).
  static absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      Domain& domain, const EpConfig& config, const ExpertParallelOptions& options = {});
  explicit ExpertParallel(std::unique_ptr<EpCalls> calls);  // for Octet's own code
  ~ExpertParallel();
  ExpertParallel(const ExpertParallel&) = delete;
  ExpertParallel& operator=(const ExpertParallel&) = delete;

  // Returns the bytes of each kind of a symmetric heap that suffice on every rank. They depend on
  // the configuration and, where it leaves the strategy or the tuning open, on the measured ones.
  static absl::StatusOr<HeapSize> HeapBytes(const EpConfig& config, int num_ranks);

  // Returns the configuration with every choice made (strategy, tuning).
  const EpConfig& config() const;

  // ---- Calls. Every rank makes the same calls in the same order, on its own thread inside
  // Node::Run. A call enqueues on rank.stream() and returns; it does not wait for the device.
  //
  // Errors: a call returns kInvalidArgument for arguments that cannot be right. What a kernel finds
  // (an id out of range, an id twice in a token, a wait that expires) is returned by
  // Rank::Synchronize or Node::Run. Until that Run has ended, calls that are enqueued behind the
  // failure do nothing: the counts and offsets in Received are zero on a rank that did not get all
  // of its rows (those on the host keep their values), and sources and indices
  // name rows of an earlier dispatch or none (-1). Peers may still write what Received names.
  //
  // Outstanding dispatches: one; its combine, if any, comes before the next dispatch. low_latency
  // allows two: a handle can be combined until the second dispatch after its own is sent.
  // high_throughput combines any handle whose layout is kept, any number of times: the backward
  // pass of combine is a dispatch with that handle and without weights, and that of dispatch is a
  // combine after it. Strategy::kAuto allows one, whatever it chooses, unless only one strategy
  // supports the configuration.
  //
  // Over several nodes:
  //   - one dispatch may be outstanding; only the last one can be combined;
  //   - `cached` and `scatter_idx` are refused (kInvalidArgument);
  //   - the calls of one phase (DispatchSend ...) are refused (kUnimplemented);
  //   - captures with RailRows::kCounted are refused (kFailedPrecondition), since the host would
  //     wait for counts;
  //   - Received is that of the dispatch within the node: RowSource::rank is a local rank,
  //     RowSource::token a token of its batch. A token has at most min(K, E/P) choices, those of
  //     this node in the order of k. The batch has the rank's own tokens first, then those of each
  //     chunk: of each other node in ascending order. With RailRows::kBlocks a node has M tokens,
  //     unused ones last; with kCounted as many as there are;
  //   - Traffic is what crosses the rail.
  //
  // Graphs: all of these calls may be captured (octet/graph.h) and replayed, one launch after the
  // other, without waiting in between:
  //
  //   auto graph = Graph::Capture(rank, [&]() -> absl::Status {
  //     const auto received = (*ep)->Dispatch(rank, args);
  //     ...
  //   });
  //   for (...) status = graph->Launch(rank);
  //
  // Capturing rank.stream() with the platform's own calls works as well; wrap each launch in
  // Rank::CoordinatedLaunch then.
  //   - All ranks capture the same calls, each in either of its forms, and launch their graphs
  //     together.
  //   - A replay uses the arguments of the capture: num_tokens and all pointers, those of Received
  //     among them. The memory that they point to may change from launch to launch.
  //   - A graph receives and combines everything that it sends, and combines no other dispatch. A
  //     graph of one step is enough, even if the strategy has two receive buffers. A replay counts
  //     as all of its calls: earlier rows and handles are void after it.
  //   - Receive everything that calls have sent before launching a graph; Graph::Launch refuses
  //     otherwise, since the graph would receive those rows instead of its own.
  //   - With config.high_throughput.host_totals, Dispatch returns kFailedPrecondition: the host
  //     would wait for a kernel that is not executed.
  //   - Graphs can be launched again after a failure of the node.

  // Sends this rank's rows and receives its experts' rows, in one kernel.
  absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchArgs& args);
  // Sends expert outputs back and sums them, in one kernel: y[t] = Σ_k topk_weights[t][k] · out(t,
  // k) in float32, each product and each sum rounded, then once to the dtype, in the order of
  // config().combine_order. CombineOrder::kPerRank uses the weights of the last dispatch with the
  // handle's layout.
  absl::Status Combine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args);

  // The same calls in two launches each, between which the caller may enqueue other work. Each rank
  // may choose either form; results are the same to the bit. kFailedPrecondition: a receive without
  // its send, or a second send before the receive. With low_latency, two dispatches and two
  // combines may be sent and not yet received; receive them in the order of sending, and before a
  // call that both sends and receives. If the body of Node::Run returns OK with a send that it has
  // not received, that Run returns kFailedPrecondition.
  absl::StatusOr<DispatchHandle> DispatchSend(Rank& rank, const DispatchArgs& args);
  absl::StatusOr<Received> DispatchReceive(Rank& rank, const DispatchHandle& handle);
  absl::Status CombineSend(Rank& rank, const DispatchHandle& handle, const CombineArgs& args);
  absl::Status CombineReceive(Rank& rank, const DispatchHandle& handle, const CombineArgs& args);

  // ---- Masks: calls continue without unresponsive peers. FailurePolicy::kMask; otherwise
  // kFailedPrecondition. On a rank's thread inside Node::Run, between its calls.
  //
  // Each rank has a mask: a set of ranks that it excludes. It neither waits for them nor sends to
  // them, and it ignores what they send: Dispatch receives no row of theirs, and Combine leaves
  // their outputs out of the sums, as if the choices of their experts were dropped (-1); weights
  // are not scaled up. A call includes or excludes a rank as a whole, and
  // LowLatencyReceived::left_out names the excluded ranks. Results are as reproducible as with all
  // ranks.
  //
  // A rank masks a peer when a call has waited for it in vain for mask_timeout. This costs
  // the time once: all waits of the call for silent peers end together, and later calls do not wait
  // for them. The ranks' calls are not coordinated on the host, so it does not matter whether a
  // rank is late, skips a call, or has left Run. Every dispatch and every combine waits for words
  // of all ranks, so all ranks notice a permanently silent one in the same call.
  //
  // Ranks do not exchange their masks. A rank that is late by about mask_timeout may be masked by
  // some peers and not by others, and in turn masks the peers that no longer send to it: each
  // continues with the ranks that it includes, without an error, and their sums differ. Therefore
  // compare left_out or MaskedRanks of the ranks, and make them agree with Mask or Unmask. Other
  // errors (a refused input, a body's Status) still stop the node, and leave masks unchanged.

  // Waits until everything enqueued so far is done, and returns the mask.
  absl::StatusOr<RankSet> MaskedRanks(Rank& rank);
  // Adds `ranks` to the mask, starting with the next call that is enqueued.
  absl::Status Mask(Rank& rank, RankSet ranks);
  // Waits for the streams of all ranks, sets every mask to `still_masked` (without the rank
  // itself), and resets the protocol. Every rank of the node calls it, masked ones included, with
  // the same `still_masked`. All ranks count their calls from here, so no rank has missed any;
  // earlier handles are void, graphs are not.
  absl::Status Unmask(Rank& rank, RankSet still_masked);

  // ---- Statistics: LowLatencyOptions::statistics; otherwise kFailedPrecondition. On a rank's
  // thread inside Node::Run.

  // Waits until everything enqueued so far is done, and returns the counters of those calls.
  absl::StatusOr<EpStatistics> Statistics(Rank& rank);
  // Enqueues the reset of all counters of the rank, those of Loads among them: with
  // LoadOptions::count, too.
  absl::Status ResetStatistics(Rank& rank);

  // ---- Any thread.

  // Returns the counters of all ranks' experts as they are: at any time, also while calls run, none
  // of which waits for it. They lie in the memory of the GPUs; a small kernel on a stream of its
  // own reads them on each GPU, and Loads waits for it, which may have to wait until the calls
  // there leave room for a block. A number is always one that the counter has had; while a dispatch
  // runs, it may be counted for some experts and not yet for others, and behind Rank::Synchronize
  // or Node::Run all are those of whole dispatches. Replays of graphs are counted.
  // kFailedPrecondition without LoadOptions::count.
  absl::StatusOr<ExpertLoads> Loads() const;

  // Returns what `rank` sends in a dispatch of this routing ([T][K], host memory).
  Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const;
  // Returns what all ranks together send back to `rank` in the combine of that routing.
  Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const;

  // For Octet's own code.
  EpCalls& calls() { return *calls_; }
  const EpCalls& calls() const { return *calls_; }

 private:
  const std::unique_ptr<EpCalls> calls_;
};

}  // namespace octet

#endif  // OCTET_EXPERT_PARALLEL_H_
