// Dispatch and combine of a Mixture-of-Experts layer over the GPUs of one node.
//
//   absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 8});
//   auto ep = ExpertParallel::Create(**node, config);
//   (*node)->Run([&](Rank& rank) -> absl::Status {
//     OCTET_ASSIGN_OR_RETURN(Received received, (*ep)->Dispatch(rank, {.x = x, ...}));
//     RunMyExperts(rank.stream(), received);                     // received.x -> out
//     return (*ep)->Combine(rank, received.handle, {.expert_out = out, .y = y});
//   });
//
// Notation in the comments: R ranks, E experts, L = E/R local experts, T tokens of a rank, M most
// tokens of a rank, K choices of a token, H elements of a row.
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
#include "octet/ep_config.h"
#include "octet/node.h"
#include "octet/received.h"
#include "octet/symmetric_heap.h"
#include "octet/trace.h"

namespace octet {

// What a rank has counted since the beginning, or since ResetStatistics.
struct EpStatistics {
  std::vector<int64_t> expert_rows;  // [L] rows received by each local expert
  // [R] How long the rank's calls have waited for what each rank sends: the sum, over its calls, of
  // the longest wait of any wave for data that was not there yet when it was looked for. Those of
  // all ranks are the rows of an R x R matrix.
  std::vector<absl::Duration> dispatch_waits;
  std::vector<absl::Duration> combine_waits;
};

// All pointers are memory of the rank's own GPU, 16-byte aligned, owned by the caller.
struct DispatchArgs {
  const void* x = nullptr;              // [T] rows: [H] of config.dtype, unless
                                        // config.dispatch_format says otherwise
  const int32_t* topk_idx = nullptr;    // [T][K], experts 0 .. E-1, distinct within a token; -1:
                                        // dropped, is not sent and adds nothing
  const float* topk_weights = nullptr;  // [T][K]; not looked at where the id is -1. Null: all are 1
  int num_tokens = 0;                   // T, 0 .. M; may differ from rank to rank

  // ---- high_throughput only. Strategy::kAuto refuses scatter_idx and cached, unless no other
  // strategy can do what the configuration asks for: name the strategy to use them.

  // DispatchFormat::kFp8: [T][scale_words] 4-byte words, moved along with the rows.
  const void* x_scales = nullptr;
  // [T][K] or null: the position of each choice among the rows that this rank sends to that expert,
  // 0 .. their number - 1, all different; not looked at where the id is -1. Null: in the order of
  // the tokens. An index out of range comes back as an error from the device; equal ones lose rows.
  const int32_t* scatter_idx = nullptr;
  // The handle of an earlier dispatch, whose layout is used again: nothing is counted or exchanged,
  // rows go where that dispatch's went. All ranks give the handle of the same call; if their
  // layouts differ, kInvalidArgument comes back from the device with the two ranks and layouts.
  // num_tokens must be that dispatch's; topk_idx and scatter_idx are not looked at. The handle must
  // be among the last config.kept_layouts dispatches that made a layout.
  const DispatchHandle* cached = nullptr;
};

struct CombineArgs {
  // Room for EpConfig::expert_out_rows(R) rows, [H] of config.dtype each: the outputs of the rows
  // in expert order, each in its row's place (with Duplicates::kIndex in the index, else in
  // Received::x). May be Received::x itself where that has just such rows; what is then left in it:
  // CombineMethod::kPull. kDeduplicated: one for each row of Received::x, which the caller has
  // weighted and summed over this rank's experts; it is moved and added as it is.
  const void* expert_out = nullptr;
  void* y = nullptr;  // [T][H] of config.dtype, all rows are written
  // A stand-in for experts, applied on the way: [L] factors; each row of expert_out is multiplied
  // by its expert's and rounded to the dtype. nullptr: rows are taken as they are. Not with
  // kDeduplicated.
  const float* expert_scale = nullptr;
  // [H] of config.dtype, added to every token's sum in float32, last, before it is rounded; 16-byte
  // aligned. nullptr: none.
  const void* bias = nullptr;
};

// Bytes of one rank's call, by the strategy's own protocol.
struct Traffic {
  int64_t rows = 0;           // rows sent, to this rank itself included
  int64_t logical_bytes = 0;  // payload of those rows
  int64_t wire_bytes = 0;     // everything stored into other GPUs: payload, metadata, flags, counts
};

struct ExpertParallelOptions {
  // Where the receive buffers go; must have HeapBytes() left and outlive the ExpertParallel.
  // nullptr: a heap of its own, of just that size.
  SymmetricHeap* heap = nullptr;
  // Kernels record their events here; must outlive the ExpertParallel. nullptr: not traced.
  TraceCollector* trace = nullptr;
  // Where config.tuning says nothing: what has been measured to be fast for such calls on this GPU
  // (kernels/tuning.h), if anything has; likewise for Strategy::kAuto. false: the strategy's own
  // choice, and the built-in rules (kernels/ep_plan.h).
  bool use_measured_tuning = true;
};

class ExpertParallel {
 public:
  // Allocates everything that the calls need, and loads all kernels on every rank. Not during
  // Node::Run. The node may be destroyed first; a call on a rank of another node is refused
  // (kFailedPrecondition).
  //   kInvalidArgument    Validate(config), or a grid that cannot be resident, or the tuning that
  //                       OCTET_TUNING names is malformed
  //   kResourceExhausted  with the bytes that are needed and that are left
  static absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      Node& node, const EpConfig& config, const ExpertParallelOptions& options = {});
  virtual ~ExpertParallel() = default;

  // Bytes of each kind of a symmetric heap that suffice on every rank: a function of the
  // configuration, and where that leaves the strategy or the tuning open, of the measured ones.
  static absl::StatusOr<HeapSize> HeapBytes(const EpConfig& config, int num_ranks);

  // The configuration with every choice made (strategy, tuning).
  virtual const EpConfig& config() const = 0;

  // ---- On a rank's thread inside Node::Run, by every rank, in the same order.
  // Enqueue on rank.stream() and return; no wait for the device. kInvalidArgument for arguments
  // that cannot be right; what a kernel finds (an id out of range, twice the same id in a token, a
  // wait that expires) comes back from Rank::Synchronize or Node::Run. Until that Run has ended,
  // what is enqueued behind it on the rank does nothing: calls end at once, the counts and offsets
  // in Received are zero on a rank that did not get all of its rows (those on the host,
  // config.host_totals, stay), and sources and indices name rows of an earlier dispatch or none
  // (-1). Peers may still write what Received names.
  //
  // One dispatch may be outstanding: its combine (if any) comes before the next dispatch. With
  // low_latency two may be: a handle can be combined until the second dispatch after its own is
  // sent. With high_throughput, a combine takes any handle whose layout is kept, as often as one
  // likes: the backward pass of combine is a dispatch with that handle and without weights, that of
  // dispatch a combine after it. With Strategy::kAuto one may be, whatever is chosen, unless only
  // one strategy can do what the configuration asks for.

  // All of these may be captured into a graph (octet/graph.h) and replayed, one launch after the
  // other, with no wait between them:
  //
  //   OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, [&]() -> absl::Status {
  //     OCTET_ASSIGN_OR_RETURN(Received received, (*ep)->Dispatch(rank, args));
  //     ...
  //   }));
  //   for (...) OCTET_RETURN_IF_ERROR(graph.Launch(rank));
  //
  // or with the HIP calls themselves, on rank.stream(), where Rank::CoordinatedLaunch is to be
  // around a launch. What there is to know:
  //   - All ranks capture the same calls, each in either of its forms, and launch their graphs
  //     together.
  //   - Arguments are what they were: num_tokens and all pointers, among them those of Received.
  //     What they point to may change from launch to launch.
  //   - A graph receives and combines whatever it sends, and combines no dispatch of another; one
  //     step is enough, with two memories to receive into as well. A replay counts as all of its
  //     calls: what was received before it, and its handles, are of no use after it.
  //   - Whatever calls have sent is to be received before a graph is launched, which would receive
  //     it in the place of what it sends itself: Graph::Launch refuses.
  //   - config.host_totals: kFailedPrecondition, the host would wait for what is not executed.
  //   - After a failure of the node, graphs can be launched again.

  // Sends this rank's rows and receives its experts' rows, in one kernel.
  virtual absl::StatusOr<Received> Dispatch(Rank& rank, const DispatchArgs& args);
  // Sends expert outputs back and sums them: y[t] = Σ_k topk_weights[t][k] · out(t, k), in float32,
  // each product and each sum rounded, then once to the dtype; in the order that
  // config().combine_order says (kernels/reference.h). In one kernel. CombineOrder::kPerRank takes
  // the weights that came with the last dispatch of the handle's layout.
  virtual absl::Status Combine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args);

  // The same in two launches, between which the caller may enqueue work of its own. Any rank may
  // choose either form; results are the same to the bit. kFailedPrecondition for steps in an order
  // that cannot be (a receive without its send, a second send before the receive). With low_latency
  // two dispatches and two combines may have been sent and not received; they are received in the
  // order in which they were sent, before the next one that is both. The body of Node::Run receives
  // what it has sent: a send without its receive at the end of a body that returns OK is an error
  // of that Run, kFailedPrecondition.
  virtual absl::StatusOr<DispatchHandle> DispatchSend(Rank& rank, const DispatchArgs& args) = 0;
  virtual absl::StatusOr<Received> DispatchReceive(Rank& rank, const DispatchHandle& handle) = 0;
  virtual absl::Status CombineSend(Rank& rank, const DispatchHandle& handle,
                                   const CombineArgs& args) = 0;
  virtual absl::Status CombineReceive(Rank& rank, const DispatchHandle& handle,
                                      const CombineArgs& args) = 0;

  // ---- Masks: FailurePolicy::kMask, else kFailedPrecondition. On a rank's thread inside
  // Node::Run, between its calls.
  //
  // Each rank has a mask: the ranks that it does not count on. It neither waits for them nor sends
  // to them, and what they send is as if it had not been sent: Dispatch receives no row of theirs,
  // and Combine leaves their part out of the sums, as if the choices of their experts were dropped
  // (-1); weights are not scaled up. A rank is in a call or out of it as a whole, and
  // Received::left_out says who is out. Results are as reproducible as with all ranks.
  //
  // A rank masks another when a call has waited for that one in vain for config.mask_timeout. This
  // costs the time once: all waits of the call for that rank, and for all others that are silent,
  // end together, and later calls do not wait. Calls of the node's ranks are not coordinated on the
  // host, so it does not matter whether a rank is late, does not come to a call, or has left Run.
  // What a rank waits for are words of all ranks, in every dispatch and every combine: all ranks
  // notice one that is silent for good in the same call. What ranks think of each other is not
  // exchanged, though. A rank that is late by about mask_timeout may be masked by some and not by
  // others, and in turn masks those that do not send to it any more: each goes on with those that
  // it counts on, without an error, and their sums differ. So compare left_out or MaskedRanks of
  // the ranks, and make them agree with Mask or Unmask. What is an error on its own (a refused
  // input, a body's Status) still stops the node, and leaves masks as they are.

  // The mask as it is when everything enqueued so far is done, for which it waits.
  virtual absl::StatusOr<RankSet> MaskedRanks(Rank& rank);
  // Adds `ranks` to the mask, from the next call that is enqueued on.
  virtual absl::Status Mask(Rank& rank, RankSet ranks);
  // By every rank of the node with the same `still_masked`, those that were masked included: waits
  // for all their streams, sets every mask to `still_masked` (but for the rank itself), and begins
  // afresh. All ranks count
  // their calls from there, so nobody has missed any; handles from before are void, graphs are not.
  virtual absl::Status Unmask(Rank& rank, RankSet still_masked);

  // ---- Statistics: config.statistics, else kFailedPrecondition. On a rank's thread inside
  // Node::Run. Of all calls that are enqueued so far, for which the first one waits; the second is
  // enqueued behind them.
  virtual absl::StatusOr<EpStatistics> Statistics(Rank& rank);
  virtual absl::Status ResetStatistics(Rank& rank);

  // ---- Any thread.

  // What `rank` puts on the wire in a dispatch of this routing ([T][K], host memory).
  virtual Traffic DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const = 0;
  // What all ranks together send back to `rank` in the combine of that routing.
  virtual Traffic CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const = 0;

 private:
  friend struct EpInternals;  // kernels/ep_internals.h

  virtual absl::Status Poison(Rank& rank, int num_rows) = 0;
  virtual absl::Span<const TraceTag> trace_tags() const = 0;
};

}  // namespace octet

#endif  // OCTET_EXPERT_PARALLEL_H_
