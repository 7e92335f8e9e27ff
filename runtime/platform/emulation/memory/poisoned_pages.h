// Pages that read as poison until they are written, and cost nothing before they are accessed:
// private mappings of a file that is filled with poison.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISONED_PAGES_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISONED_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace octet::emulation {

inline constexpr size_t kPage = 4096;

inline char* Pointer(uintptr_t address) { return reinterpret_cast<char*>(address); }

class PoisonedPages {
 public:
  // The unit of mapping, and the size of the file. A smaller unit would save memory (at most one
  // file per process, and only as much as was mapped), but take more mappings. Linux allows a
  // process 65,530 mappings: enough for all arenas at this size.
  static constexpr size_t kUnit = 32 << 20;

  PoisonedPages();
  ~PoisonedPages();
  PoisonedPages(const PoisonedPages&) = delete;
  PoisonedPages& operator=(const PoisonedPages&) = delete;

  // Makes [begin, begin + bytes) readable and writable, replacing what was mapped there. Both are
  // multiples of kUnit. Without memory files on this machine, the pages are zero. Returns false if
  // there is no memory.
  bool Map(uintptr_t begin, size_t bytes) const;
  // Must be called before any of [begin, begin + bytes), as mapped, is handed out.
  void Fill(uintptr_t begin, size_t bytes);
  // Makes the pages read as poison again. Up to kMostKept bytes stay in memory, since giving pages
  // back and touching them again costs far more than writing to them; more is given back.
  void Reset(uintptr_t begin, size_t bytes) const;

 private:
  static constexpr size_t kMostKept = 4 << 20;

  // Writes poison to the pages that have been written to. Returns false if they are not known.
  bool Overwrite(uintptr_t begin, size_t bytes) const;

  int file_ = -1;
  int page_map_ = -1;  // /proc/self/pagemap
  size_t filled_ = 0;
};

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_MEMORY_POISONED_PAGES_H_
