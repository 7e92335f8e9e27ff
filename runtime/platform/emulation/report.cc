#include "report.h"

#include <cstdio>
#include <cstring>
#include <map>

#include "machine.h"
#include "symbols.h"

namespace octet::emulation {
namespace {

// "0-3,7".
std::string Ranges(LaneMask lanes) {
  std::string text;
  for (int i = 0; i < kMaxWaveSize; ++i) {
    if ((lanes >> i & 1) == 0) continue;
    const int first = i;
    while (i + 1 < kMaxWaveSize && (lanes >> (i + 1) & 1) != 0) ++i;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (i > first) text += '-' + std::to_string(i);
  }
  return text;
}

std::string DescribeWait(const Lane& lane) {
  const Wave& wave = *lane.wave;
  switch (lane.waiting) {
    case Waiting::kNot:
      return (wave.unstarted & LaneBit(lane.lane)) != 0 ? "not started" : "running";
    case Waiting::kWave:
      return std::string("waits for its wave in ") + wave.collective + " " +
             DescribeWhere(lane.where);
    case Waiting::kBlock:
      return "waits for its block in __syncthreads " + DescribeWhere(lane.where);
    case Waiting::kGrid:
      return "waits for its grid in this_grid().sync() " + DescribeWhere(lane.where);
    case Waiting::kValue: {
      char value[64];
      if (lane.poll_bytes == 16) {
        std::snprintf(value, sizeof(value), "0x%llx, 0x%llx",
                      static_cast<unsigned long long>(lane.poll_value[0]),
                      static_cast<unsigned long long>(lane.poll_value[1]));
      } else {
        std::snprintf(value, sizeof(value), "%llu",
                      static_cast<unsigned long long>(lane.poll_value[0]));
      }
      return "waits for the value " + std::string(value) + " to change at " +
             wave.block->grid->device->machine->memory.Describe(lane.poll_address) + " " +
             DescribeWhere(lane.where);
    }
    case Waiting::kAnything:
      return "polls " + DescribeWhere(lane.where);
    case Waiting::kGone:
      return "has left the kernel";
  }
  return "";
}

std::string DescribeBlock(const Block& block) {
  return "device " + std::to_string(block.grid->device->id) + ", kernel " +
         FunctionName(block.grid->kernel) + ", block " + std::to_string(block.number);
}

}  // namespace

std::string DescribeWhere(const Location& where) {
  const char* file = where.file_name();
  if (file == nullptr || *file == '\0') return "";
  const char* slash = std::strrchr(file, '/');
  return std::string("(") + (slash != nullptr ? slash + 1 : file) + ":" +
         std::to_string(where.line()) + ")";
}

std::string DescribeLane(const Lane& lane) {
  return DescribeBlock(*lane.wave->block) + ", wave " + std::to_string(lane.wave_index) +
         ", lane " + std::to_string(lane.lane);
}

std::string DescribeGrid(const Grid& grid) {
  std::string report;
  for (const auto& block : grid.blocks) {
    if (block->live == 0) continue;
    for (const Wave& wave : block->waves) {
      std::map<std::string, LaneMask> groups;
      for (int i = 0; i < wave.num_lanes; ++i) {
        if (wave.lanes[i].waiting == Waiting::kGone) continue;
        groups[DescribeWait(wave.lanes[i])] |= LaneBit(i);
      }
      for (const auto& [text, lanes] : groups) {
        report += "  " + DescribeBlock(*block) + ", wave " + std::to_string(wave.index) +
                  ", lanes " + Ranges(lanes) + ": " + text + "\n";
      }
    }
  }
  return report;
}

}  // namespace octet::emulation
