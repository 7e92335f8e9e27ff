#include "tests/faults/fault_table.h"

#include <string>
#include <utility>

namespace octet::faults {
namespace {

// Of a strategy that sends token by token, and `own` rows beside those that all such have. Rows are
// stored in `file`.
std::vector<Row> TokensTable(Strategy strategy, const std::string& name,
                             const std::string& name_space, const std::string& file,
                             const std::vector<Row>& own) {
  const Words send_to_receive = {"data race", "SendToken", "ReceiveToken"};
  std::vector<Row> rows = {
      {.fault = Fault::kMissingRelease,
       .name = "MissingRelease",
       .weak = {"Dispatch", "old value read", "\n  not released at "},
       .tsan = send_to_receive},
      // With weak memory an old packet sends the receiver's plain stores anywhere.
      {.fault = Fault::kMissingAcquire, .name = "MissingAcquire", .tsan = send_to_receive},
      {.fault = Fault::kDeviceScope,
       .name = "DeviceScope",
       .weak = {"old value read", "not released at system scope, only at device scope"},
       .tsan = send_to_receive},
      {.fault = Fault::kFlagBeforePayload,
       .name = "FlagBeforePayload",
       .comparison = {"y of token"},
       .weak = {"old value read"},
       .tsan = {"data race", "StoreLateVectors", "ReceiveToken"}},
      {.fault = Fault::kOffByOneSlot,
       .name = "OffByOneSlot",
       .comparison = {"y of token"},
       .tsan = {"data race", "SeamStoreStream", name_space}},
      {.fault = Fault::kRowPastTheEnd,
       .name = "RowPastTheEnd",
       .access = {"Dispatch", "write to 0x", "not allocated: 0 bytes past the", file,
                  "out of bounds"}},
  };
  rows.insert(rows.end(), own.begin(), own.end());
  for (Row& row : rows) {
    row.name = name + row.name;
    row.strategy = strategy;
  }
  return rows;
}

std::vector<Row> HighThroughputTable() {
  return TokensTable(
      Strategy::kHighThroughput, "HighThroughput", "octet::high_throughput::", "(row_copy.h:",
      {
          {.fault = Fault::kShareNotAwaited,
           .name = "ShareNotAwaited",
           .deadline = {"receive waited", "row counts: epoch seen from each rank"},
           // Two tokens have the same place.
           .tsan = {"data race", "SendToken"}},
          {.fault = Fault::kShareNotTold,
           .name = "ShareNotTold",
           .deadline = {"dispatch-send waited 10.0 s for share count of block 1: expected epoch "}},
          {.fault = Fault::kCounterNotCleared,
           .name = "CounterNotCleared",
           // The queues': tokens count as taken that nobody has sent. And calls': from the third on
           // the epoch stays what it was, for which old flags and counts do.
           .deadline = {"dispatch-receive waited 10.0 s for rank ", "packet flag of slot "},
           .weak = {"old value read"},
           .tsan = {"data race", "FinishRoute", "SumColumns"}},
          {.fault = Fault::kFlagNobodySets,
           .name = "FlagNobodySets",
           .deadline = {"combine-receive waited 10.0 s for rank ",
                        "'s row flag of token 0: expected epoch 1, seen 0"}},
          {.fault = Fault::kCreditIgnored,
           .name = "CreditIgnored",
           .form = Form::kCached,
           .comparison = {"y of token"},
           .tsan = {"data race", "SendToken"}},
          {.fault = Fault::kOneParity,
           .name = "OneParity",
           .idle_steps = true,
           .deadline = {"dispatch-receive waited 10.0 s for rank ", "packet flag of slot "}},
      });
}

std::vector<Row> DirectTable() {
  const Words send_to_receive = {"data race", "SendTile", "ReceiveRow"};
  return {
      {.fault = Fault::kMissingRelease,
       .name = "MissingRelease",
       .weak = {"Dispatch", "old value read", "\n  not released at system scope\n"},
       .tsan = send_to_receive},
      {.fault = Fault::kMissingAcquire,
       .name = "MissingAcquire",
       .weak = {"old value read", "released, but not acquired at system scope since"},
       .tsan = send_to_receive},
      {.fault = Fault::kDeviceScope,
       .name = "DeviceScope",
       .weak = {"old value read", "not released at system scope, only at device scope"},
       .tsan = send_to_receive},
      {.fault = Fault::kFlagBeforePayload,
       .name = "FlagBeforePayload",
       .comparison = {"y of token"},
       .weak = {"old value read", "SeamWavePublish"},
       .tsan = {"data race", "SeamWavePublish", "ReceiveRow"}},
      {.fault = Fault::kMissingGridSync,
       .name = "MissingGridSync",
       .comparison = {"a block was ahead"}},
      {.fault = Fault::kNotLastBlock,
       .name = "NotLastBlock",
       .flags = Flags::kSource,
       .comparison = {"y of token"},
       .weak = {"old value read"},
       .tsan = send_to_receive},
      {.fault = Fault::kBitInsteadOfEpoch,
       .name = "BitInsteadOfEpoch",
       .comparison = {"y of token"},
       .weak = {"old value read", "released, but not acquired"},
       .tsan = send_to_receive,
       // A source that nobody has written is of rank -1.
       .asan = {"index -1 out of bounds", "CombineSender::At"}},
      {.fault = Fault::kCounterNotCleared,
       .name = "CounterNotCleared",
       .deadline = {"waited", "expected epoch"},
       .weak = {"old value read"},
       // Of rows on their way there or home: which of them come first is the scheduler's.
       .tsan = {"data race", "octet::direct::"}},
      {.fault = Fault::kOffByOneSlot, .name = "OffByOneSlot", .comparison = {"y of token"}},
      {.fault = Fault::kRowPastTheEnd,
       .name = "RowPastTheEnd",
       .access = {"Dispatch", "write to 0x", "(device 1, not allocated: 0 bytes past the",
                  "(row_copy.h:", "out of bounds"}},
      {.fault = Fault::kPacketPastTheEnd,
       .name = "PacketPastTheEnd",
       .access = {"atomic access to 0x", "bytes past the", "out of bounds"},
       .asan = {"AddressSanitizer", "WRITE of size 4", "SendTile", "dispatch.hip"}},
      {.fault = Fault::kFlagNobodySets,
       .name = "FlagNobodySets",
       .deadline = {"dispatch-receive waited 10.0 s for rank ",
                    "'s row flag of slot 0: expected epoch 1, seen 0"}},
  };
}

std::vector<Row> LowLatencyTable() {
  return TokensTable(
      Strategy::kLowLatency, "LowLatency", "octet::low_latency::", "wire_row.h:",
      {
          {.fault = Fault::kFlagNobodySets,
           .name = "FlagNobodySets",
           .deadline = {"dispatch-receive waited 10.0 s for rank ",
                        "'s packet flag of slot 0: expected epoch 1, seen 0"}},
          {.fault = Fault::kCreditIgnored,
           .name = "DispatchCreditIgnored",
           .calls = Calls::kDispatches,
           .comparison = {"expert_counts["},
           .tsan = {"data race", "SendToken", "ReceiveToken"}},
          {.fault = Fault::kCreditIgnored,
           .name = "CombineCreditIgnored",
           .calls = Calls::kCombines,
           .drop = 0.5,
           .comparison = {"y of token"},
           .tsan = {"data race", "SendRows", "SumRows"}},
          {.fault = Fault::kOneParity,
           .name = "OneParity",
           .idle_steps = true,
           .deadline = {"dispatch-receive waited 10.0 s for rank "}},
          {.fault = Fault::kCountTooSmall,
           .name = "CountTooSmall",
           .deadline = {"combine-receive waited 10.0 s for rank "}},
          {.fault = Fault::kWrongSource,
           .name = "WrongSource",
           .deadline = {"combine-receive waited 10.0 s for rank "}},
          {.fault = Fault::kScaleOfZeros,
           .name = "ScaleOfZeros",
           .quantized = true,
           .comparison = {"y of token"}},
          {.fault = Fault::kDropIsAwaited,
           .name = "DropIsAwaited",
           .drop = 0.5,
           .deadline = {"combine-receive waited 10.0 s for rank 0's row flag of token "}},
      });
}

}  // namespace

std::vector<Row> Table() {
  std::vector<Row> rows = DirectTable();
  for (Row& row : HighThroughputTable()) rows.push_back(std::move(row));
  for (Row& row : LowLatencyTable()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace octet::faults
