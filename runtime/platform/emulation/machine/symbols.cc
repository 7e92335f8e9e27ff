#include "machine/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace octet::emulation {
namespace {

// A file in memory, read-only.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status;
    if (fstat(file, &status) == 0 && status.st_size > 0) {
      const auto bytes = static_cast<size_t>(status.st_size);
      void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory != MAP_FAILED) {
        data_ = static_cast<const char*>(memory);
        bytes_ = bytes;
      }
    }
    close(file);
  }
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Returns nullptr if the file does not have that many objects there.
  template <typename T>
  const T* At(uint64_t offset, uint64_t count = 1) const {
    if (offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Returns the symbol of the function whose code is at `offset` from the file's load address; empty
// if there is none.
std::string FindSymbol(const MappedFile& file, uint64_t offset) {
  const auto* header = file.At<ElfW(Ehdr)>(0);
  if (header == nullptr || header->e_ident[0] != ELFMAG0) return "";
  const auto* sections = file.At<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return "";
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const auto& section = sections[i];
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= header->e_shnum) continue;
    const uint64_t count = section.sh_size / sizeof(ElfW(Sym));
    const auto* symbols = file.At<ElfW(Sym)>(section.sh_offset, count);
    const auto& strings = sections[section.sh_link];
    if (symbols == nullptr) continue;
    for (uint64_t s = 0; s < count; ++s) {
      if ((symbols[s].st_info & 0xf) != STT_FUNC) continue;
      if (offset - symbols[s].st_value >= std::max<uint64_t>(symbols[s].st_size, 1)) continue;
      const char* name = file.At<char>(strings.sh_offset + symbols[s].st_name);
      if (name != nullptr) return name;
    }
  }
  return "";
}

std::string Demangled(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string name = text != nullptr ? text : symbol;
  std::free(text);
  // Removes the parameters from "a::(anonymous namespace)::F(int)".
  const size_t close = name.rfind(')');
  if (close == std::string::npos) return name;
  int depth = 0;
  for (size_t i = close + 1; i-- > 0;) {
    depth += (name[i] == ')') - (name[i] == '(');
    if (depth == 0) return name.substr(0, i);
  }
  return name;
}

std::string Resolve(const void* function) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(function, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0) {
    const char* path =
        map->l_name != nullptr && *map->l_name != '\0' ? map->l_name : "/proc/self/exe";
    const std::string symbol =
        FindSymbol(MappedFile(path), reinterpret_cast<uintptr_t>(function) - map->l_addr);
    if (!symbol.empty()) return Demangled(symbol);
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%p", function);
  return text;
}

}  // namespace

std::string FunctionName(const void* function) {
  static std::mutex names_mutex;
  static std::map<const void*, std::string> names;
  std::lock_guard lock(names_mutex);
  std::string& name = names[function];
  if (name.empty()) name = Resolve(function);
  return name;
}

std::string CodePlace(const void* code) {
  // A return address is just behind the code in question.
  const auto address = reinterpret_cast<uintptr_t>(code) - 1;
  std::string text = FunctionName(reinterpret_cast<const void*>(address));
  Dl_info info;
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return text;
  const std::string path = info.dli_fname;
  char offset[32];
  std::snprintf(offset, sizeof(offset), "+0x%zx)",
                static_cast<size_t>(address - reinterpret_cast<uintptr_t>(info.dli_fbase)));
  return text + " (" + path.substr(path.rfind('/') + 1) + offset;
}

}  // namespace octet::emulation
