// Checks which addresses a kernel may access.
#include <link.h>

#include <string>

#include "machine/report.h"
#include "scheduler/lane_operations.h"
#include "scheduler/worker.h"

namespace octet::emulation {
namespace {

struct Segment {
  uintptr_t address;
  uintptr_t begin = 0;
  size_t bytes = 0;
};

// Finds the program's own globals and constants.
bool FindSegment(Segment* segment) {
  return dl_iterate_phdr(
             [](dl_phdr_info* info, size_t, void* data) {
               auto* wanted = static_cast<Segment*>(data);
               for (int i = 0; i < info->dlpi_phnum; ++i) {
                 const auto& header = info->dlpi_phdr[i];
                 const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
                 if (header.p_type != PT_LOAD || wanted->address - begin >= header.p_memsz) {
                   continue;
                 }
                 wanted->begin = begin;
                 wanted->bytes = header.p_memsz;
                 return 1;
               }
               return 0;
             },
             segment) != 0;
}

[[noreturn]] void Refuse(Lane* lane, const char* access, const void* address, const char* why,
                         const Location& where) {
  Worker* worker = Worker::Current();
  TsanIgnoreBegin();
  std::string what = worker->machine()->memory.Describe(address);
  what = std::string(access) + " " + what + " " + DescribeWhere(where) + ": " + why;
  worker->FailFromLane(lane, hipErrorIllegalAddress, std::move(what));
}

AccessRange RangeOf(uintptr_t begin, size_t bytes) {
  if (bytes < 16) return {begin, bytes - 1, 0};
  return {begin, bytes - 1, bytes / 16 - 1};
}

bool Contains(uintptr_t begin, size_t bytes, uintptr_t address) { return address - begin < bytes; }

// Returns the range that contains the access. Does not return if the access is refused.
AccessRange Resolve(Lane* lane, const char* access, const void* pointer, size_t bytes,
                    const Location& where) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  Block* block = lane->wave->block;
  Device* device = block->grid->device;
  const Memory& memory = device->machine->memory;
  if (address % bytes != 0) Refuse(lane, access, pointer, "misaligned", where);

  uintptr_t begin = 0;
  size_t size = 0;
  const int arena = memory.ArenaOf(pointer);
  if (arena != kNoArena) {
    if ((device->accessible.load(std::memory_order_relaxed) >> arena & 1) == 0) {
      Refuse(lane, access, pointer, "no peer access from this device to that one", where);
    }
    Allocation& recent = device->recent[static_cast<size_t>(arena)];
    if (device->memory_epoch != memory.epoch()) recent = {};
    if (!Contains(recent.begin, recent.bytes, address) && !memory.Find(pointer, &recent)) {
      Refuse(lane, access, pointer, "out of bounds or freed", where);
    }
    begin = recent.begin;
    size = recent.bytes;
  } else if (Contains(reinterpret_cast<uintptr_t>(block->shared), block->shared_used, address)) {
    begin = reinterpret_cast<uintptr_t>(block->shared);
    size = block->shared_used;
  } else if (Contains(reinterpret_cast<uintptr_t>(lane->stack), lane->context.stack_bytes,
                      address)) {
    begin = address;  // other lanes must not access this stack
    size = bytes;
  } else {
    Segment segment{address};
    if (!FindSegment(&segment)) {
      Refuse(lane, access, pointer, "host memory that is not pinned, or no memory at all", where);
    }
    begin = segment.begin;
    size = segment.bytes;
  }
  if (size - (address - begin) < bytes) Refuse(lane, access, pointer, "out of bounds", where);
  return RangeOf(begin, size);
}

// Small objects are looked up each time: a range of less than 16 bytes refuses every vector.
AccessRange VectorRange(const AccessRange& range) {
  return range.last < 15 || range.begin % 16 != 0 ? AccessRange{1, 0, 0} : range;
}

}  // namespace

void MissRead16(const void* address, Location where) {
  Lane* lane = ThisLane();
  lane->wave->read = VectorRange(Resolve(lane, "read of", address, 16, where));
}

void MissWrite16(const void* address, Location where) {
  Lane* lane = ThisLane();
  lane->wave->write = VectorRange(Resolve(lane, "write to", address, 16, where));
}

void CheckAtomic(Lane* lane, const void* address, size_t bytes, Location where) {
  AccessRange& range = lane->wave->atomic;
  const uintptr_t value = reinterpret_cast<uintptr_t>(address);
  const uintptr_t offset = value - range.begin;
  if (offset <= range.last && range.last - offset >= bytes - 1 && value % bytes == 0) return;
  range = Resolve(lane, "atomic access to", address, bytes, where);
}

}  // namespace octet::emulation
