#include "tests/support/nodes/several_nodes.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/ep/base/fill_memory.h"
#include "kernels/nodes/options.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/rails/rail.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

absl::Status Wrong(int global, const std::string& what) {
  return absl::DataLossError(absl::StrCat("global rank ", global, ": ", what));
}

}  // namespace

absl::Status SeveralNodes::Add(const JoinedNodes::OneNode& node, const EpConfig& config,
                               const Options& options) {
  OfNode& added = calls_.emplace_back();
  OCTET_ASSIGN_OR_RETURN(
      added.ep, ExpertParallel::Create(*node.domain, config,
                                       {.rails = {.rows = options.rows,
                                                  .chunk_tokens = options.chunk_tokens,
                                                  .intranode_order = shape_.intranode_order}}));
  added.buffers.resize(Size(shape_.ranks_per_node));
  added.received.resize(Size(shape_.ranks_per_node));
  return node.domain->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(added.buffers[Size(rank.rank())],
                           StepBuffers::Create(rank, added.ep->config(), false));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<SeveralNodes>> SeveralNodes::Create(const NodesOfRanks& shape,
                                                                   const EpConfig& config,
                                                                   const Options& options) {
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<JoinedNodes> joined,
                         JoinedNodes::Create(shape, options.timeout));
  return Create(std::move(joined), config, options);
}

absl::StatusOr<std::unique_ptr<SeveralNodes>> SeveralNodes::Create(
    std::unique_ptr<JoinedNodes> joined, const EpConfig& config, const Options& options) {
  auto nodes = absl::WrapUnique(new SeveralNodes(std::move(joined), options));
  for (const JoinedNodes::OneNode& node : nodes->joined_->nodes()) {
    OCTET_RETURN_IF_ERROR(nodes->Add(node, config, options));
  }
  return nodes;
}

absl::StatusOr<Received> SeveralNodes::Dispatch(Rank& rank, int global) {
  OfNode& node = NodeOf(global);
  OCTET_ASSIGN_OR_RETURN(node.received[Size(rank.rank())],
                         node.ep->Dispatch(rank, node.buffers[Size(rank.rank())].dispatch_args()));
  return node.received[Size(rank.rank())];
}

absl::Status SeveralNodes::SendFirstChunk(Rank& rank, int global, const Chunks& chunks) {
  const JoinedNodes::OneNode& node = joined_->nodes()[joined_->IndexOf(global)];
  const size_t records = RailRecordBytes(config(), shape_.num_nodes) * Size(chunks.rows);
  const size_t rows = config().dispatch_row_bytes() * Size(chunks.rows);
  OCTET_ASSIGN_OR_RETURN(DeviceMemory sent, DeviceMemory::Allocate(rows));
  OCTET_ASSIGN_OR_RETURN(DeviceMemory came, DeviceMemory::Allocate(rows));
  OCTET_RETURN_IF_ERROR(FillBytes(rank, sent.as<void>(), rows, 0xff));  // records: no choices
  std::vector<RailPart> parts;
  for (int part = 0; part <= chunks.chunks; ++part) {
    const size_t bytes = part < chunks.chunks ? records : rows;
    parts.insert(parts.end(), Size(shape_.num_nodes),
                 {sent.as<void>(), bytes, came.as<void>(), bytes});
  }
  OCTET_RETURN_IF_ERROR(node.domain->rail(rank.rank())->Exchange(rank, parts));
  return rank.Synchronize();
}

absl::Status SeveralNodes::Combine(Rank& rank, int global, const void* expert_out) {
  const OfNode& node = NodeOf(global);
  return node.ep->Combine(
      rank, node.received[Size(rank.rank())].handle,
      {.expert_out = expert_out, .y = node.buffers[Size(rank.rank())].y.as<void>()});
}

absl::Status SeveralNodes::Upload(const StepInput& input) {
  const std::vector<RankInput> sent = input.sent();
  const std::vector<float> scales = PhysicalStep(config(), input).expert_scale;
  const size_t local = scales.size() / sent.size();
  return joined_->OneByOne([&](Rank& rank, int global) -> absl::Status {
    StepBuffers& buffers = NodeOf(global).buffers[Size(rank.rank())];
    OCTET_RETURN_IF_ERROR(buffers.Upload(rank, sent[Size(global)]));
    OCTET_RETURN_IF_ERROR(buffers.UploadExpertScale(
        rank, absl::MakeConstSpan(scales).subspan(Size(global) * local, local)));
    OCTET_RETURN_IF_ERROR(buffers.Poison(rank, 0));
    return rank.Synchronize();
  });
}

absl::Status SeveralNodes::Step(const StepInput& input) {
  OCTET_RETURN_IF_ERROR(Upload(input));
  OCTET_RETURN_IF_ERROR(
      Run([&](Rank& rank, int global) { return Dispatch(rank, global).status(); }));
  std::vector<DeviceMemory> out(input.ranks.size());
  const StepInput physical = PhysicalStep(config(), input);
  OCTET_RETURN_IF_ERROR(joined_->OneByOne([&](Rank& rank, int global) {
    return CheckReceived(rank, global, physical, out[Size(global)]);
  }));
  OCTET_RETURN_IF_ERROR(Run(
      [&](Rank& rank, int global) { return Combine(rank, global, out[Size(global)].as<void>()); }));
  return joined_->OneByOne([&](Rank& rank, int global) { return CheckY(rank, global, input); });
}

RankInput SeveralNodes::Batch::view() const {
  return {.num_tokens = num_tokens,
          .x = x,
          .topk_idx = topk_idx,
          .topk_weights = topk_weights,
          .fp8 = fp8,
          .scales = scales};
}

// Adds the token if it has chosen experts of `node`: those first, in the order of k.
void SeveralNodes::Batch::Add(const RankInput& token, const EpConfig& intranode, int node) {
  const size_t before = topk_idx.size();
  for (size_t k = 0; k < token.topk_idx.size(); ++k) {
    const int32_t id = token.topk_idx[k];
    if (id < 0 || id / intranode.num_experts != node) continue;
    topk_idx.push_back(id % intranode.num_experts);
    topk_weights.push_back(token.topk_weights.empty() ? 1.0F : token.topk_weights[k]);
  }
  if (topk_idx.size() == before) return;
  x.insert(x.end(), token.x.begin(), token.x.end());
  fp8.insert(fp8.end(), token.fp8.begin(), token.fp8.end());
  scales.insert(scales.end(), token.scales.begin(), token.scales.end());
  Fill(intranode, num_tokens + 1);
}

void SeveralNodes::Batch::Append(const RankInput& token, const EpConfig& intranode) {
  x.insert(x.end(), token.x.begin(), token.x.end());
  topk_idx.insert(topk_idx.end(), token.topk_idx.begin(), token.topk_idx.end());
  topk_weights.insert(topk_weights.end(), token.topk_weights.begin(), token.topk_weights.end());
  fp8.insert(fp8.end(), token.fp8.begin(), token.fp8.end());
  scales.insert(scales.end(), token.scales.begin(), token.scales.end());
  Fill(intranode, num_tokens + 1);
}

void SeveralNodes::Batch::Fill(const EpConfig& intranode, int tokens) {
  num_tokens = tokens;
  topk_idx.resize(Size(tokens * intranode.topk), -1);
  topk_weights.resize(Size(tokens * intranode.topk));
  x.resize(Size(tokens * intranode.hidden));
  if (intranode.dispatch_format != DispatchFormat::kFp8) return;
  fp8.resize(Size(tokens * intranode.hidden));
  scales.resize(Size(tokens * intranode.scale_words()));
}

SeveralNodes::Batch SeveralNodes::BatchOf(const StepInput& input, int node, int local) const {
  const EpConfig& c = config();
  const EpConfig intranode = IntranodeConfig(c, shape_);
  const std::vector<RankInput> sent = input.sent();
  std::vector<Batch> of_nodes(Size(shape_.num_nodes));
  for (int from = 0; from < shape_.num_nodes; ++from) {
    const RankInput& source = sent[Size(from * shape_.ranks_per_node + local)];
    Batch& batch = of_nodes[Size(from)];
    for (int t = 0; t < source.num_tokens; ++t) {
      batch.Add(source.Tokens(c, Size(t), 1), intranode, node);
    }
    if (blocks_) batch.Fill(intranode, c.max_tokens_per_rank);
  }
  // The rank's own tokens first, then a chunk of each other node, another one of each, ...
  Batch all = of_nodes[Size(node)];
  const int chunk = chunk_tokens_ > 0 ? chunk_tokens_ : c.max_tokens_per_rank;
  for (int first = 0; first < c.max_tokens_per_rank; first += chunk) {
    for (int from = 0; from < shape_.num_nodes; ++from) {
      if (from == node) continue;
      const RankInput batch = of_nodes[Size(from)].view();
      for (int t = first; t < std::min(first + chunk, batch.num_tokens); ++t) {
        all.Append(batch.Tokens(intranode, Size(t), 1), intranode);
      }
    }
  }
  return all;
}

absl::Status SeveralNodes::CheckReceived(Rank& rank, int global, const StepInput& input,
                                         DeviceMemory& out) {
  const int node = global / shape_.ranks_per_node;
  std::vector<Batch> batches;
  std::vector<RankInput> views;
  for (int r = 0; r < shape_.ranks_per_node; ++r) batches.push_back(BatchOf(input, node, r));
  for (const Batch& batch : batches) views.push_back(batch.view());
  const EpConfig c = IntranodeConfig(config(), shape_);
  const ReferenceReceived want = ReferenceDispatch(c, views, rank.rank());
  const Received& got = NodeOf(global).received[Size(rank.rank())];
  OCTET_ASSIGN_OR_RETURN(const std::vector<int32_t> offsets,
                         ToHost<int32_t>(got.expert_offsets, want.expert_offsets.size()));
  if (offsets != want.expert_offsets) return Wrong(global, "expert_offsets differ");
  const size_t rows = want.sources.size();
  OCTET_ASSIGN_OR_RETURN(const std::vector<RowSource> sources,
                         ToHost<RowSource>(got.sources, rows));
  OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> x,
                         ToHost<uint8_t>(got.x, rows * got.row_bytes));
  std::vector<uint16_t> outputs;
  const bool fp8 = c.dispatch_format == DispatchFormat::kFp8;
  const size_t words = Size(c.scale_words());
  std::vector<uint32_t> scales;
  if (fp8) {
    OCTET_ASSIGN_OR_RETURN(scales, ToHost<uint32_t>(got.scales, rows * words));
  }
  for (size_t i = 0; i < rows; ++i) {
    const RowSource& source = want.sources[i];
    if (std::memcmp(&sources[i], &source, sizeof(RowSource)) != 0) {
      return Wrong(global, absl::StrCat("source ", i, " differs"));
    }
    const RankInput token = views[Size(source.rank)].Tokens(c, Size(source.token), 1);
    const void* row = fp8 ? static_cast<const void*>(token.fp8.data()) : token.x.data();
    if (std::memcmp(row, x.data() + i * got.row_bytes, c.dispatch_row_bytes()) != 0) {
      return Wrong(global, absl::StrCat("row ", i, " differs"));
    }
    if (!std::equal(token.scales.begin(), token.scales.end(), scales.begin() + i * words)) {
      return Wrong(global, absl::StrCat("scales of row ", i, " differ"));
    }
    const int expert = global * c.num_local_experts(shape_.ranks_per_node) + source.local_expert;
    outputs.resize((i + 1) * Size(c.hidden));
    ReferenceExpert(c.dtype, token.x, input.expert_scale[Size(expert)],
                    absl::MakeSpan(outputs).subspan(i * Size(c.hidden)));
  }
  OCTET_ASSIGN_OR_RETURN(
      out,
      DeviceMemory::Allocate(Size(c.expert_out_rows(shape_.ranks_per_node)) * c.dtype_row_bytes()));
  return ToDevice(out, outputs);
}

absl::Status SeveralNodes::CheckY(const Rank& rank, int global, const StepInput& input) {
  const EpConfig& c = config();
  RankInput mine = input.sent()[Size(global)];
  mine.fp8 = {};
  const std::vector<uint16_t> want = ReferenceCombine(c, shape_, mine, input.expert_scale);
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<uint16_t> y,
      ToHost<uint16_t>(NodeOf(global).buffers[Size(rank.rank())].y.as<void>(), want.size()));
  return SameBits(c.dtype, y, want) ? absl::OkStatus() : Wrong(global, "y differs");
}

}  // namespace octet
