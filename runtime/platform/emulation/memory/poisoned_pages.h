// Pages that read as poison until they are written, at no cost before they are touched: private
// mappings of a file that is filled with it.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISONED_PAGES_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISONED_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace octet::emulation {

class PoisonedPages {
 public:
  // Multiples of this are mapped at once. The file is as large. Smaller would save its memory (once
  // a process, and only as much as was mapped), but take more mappings, of which Linux gives a
  // process 65,530: enough for all arenas at this size.
  static constexpr size_t kUnit = 32 << 20;

  PoisonedPages();
  ~PoisonedPages();
  PoisonedPages(const PoisonedPages&) = delete;
  PoisonedPages& operator=(const PoisonedPages&) = delete;

  // Makes [begin, begin + bytes) readable and writable, in place of what was mapped there. Both are
  // multiples of kUnit. Without memory files on this machine, the pages are zero. False: no memory.
  bool Map(uintptr_t begin, size_t bytes) const;
  // Must be called before any of [begin, begin + bytes), as mapped, is handed out.
  void Fill(uintptr_t begin, size_t bytes);
  // Forgets what was written there.
  static void Reset(uintptr_t begin, size_t bytes);

 private:
  int file_ = -1;
  size_t filled_ = 0;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISONED_PAGES_H_
