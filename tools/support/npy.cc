#include "tools/support/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "tools/support/atomic_file.h"

namespace octet {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are copied as they lie in files");

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMostHeaderBytes = 65536;  // NumPy itself reads no more than 10,000 by default
constexpr size_t kHeaderAlignment = 64;
constexpr size_t kMostDimensions = 32;

struct TypeInfo {
  NpyType type;
  absl::string_view name;
  absl::string_view descr;
  size_t bytes;
};
constexpr std::array<TypeInfo, 7> kTypes = {{
    {NpyType::kUint8, "uint8", "|u1", 1},
    {NpyType::kFloat16, "float16", "<f2", 2},
    {NpyType::kUint16, "uint16", "<u2", 2},
    {NpyType::kInt32, "int32", "<i4", 4},
    {NpyType::kInt64, "int64", "<i8", 8},
    {NpyType::kFloat32, "float32", "<f4", 4},
    {NpyType::kFloat64, "float64", "<f8", 8},
}};

const TypeInfo& InfoOf(NpyType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [type](const TypeInfo& info) { return info.type == type; });
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed .npy header: ", what));
}

// Parses the header, the text of a Python dictionary; supports only the forms that NumPy writes.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : rest_(text) {}

  absl::Status Parse() {
    if (!Take('{')) return Malformed("it is not a dictionary");
    while (!Take('}')) {
      OCTET_ASSIGN_OR_RETURN(const std::string key, String());
      if (!Take(':')) return Malformed(absl::StrCat("no ':' after '", key, "'"));
      OCTET_RETURN_IF_ERROR(Value(key));
      if (Take(',')) continue;
      if (!Take('}')) return Malformed("no ',' or '}' after a value");
      break;
    }
    rest_ = absl::StripAsciiWhitespace(rest_);
    if (!rest_.empty()) return Malformed("something follows the dictionary");
    if (!has_descr_ || !has_fortran_ || !has_shape_) {
      return Malformed("it lacks one of 'descr', 'fortran_order', 'shape'");
    }
    return absl::OkStatus();
  }

  const std::string& descr() const { return descr_; }
  bool fortran() const { return fortran_; }
  const std::vector<int64_t>& shape() const { return shape_; }

 private:
  bool Take(char c) {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  absl::StatusOr<std::string> String() {
    const char quote = Take('\'') ? '\'' : '"';
    if (quote == '"' && !Take('"')) return Malformed("a name in quotes is missing");
    const size_t end = rest_.find(quote);
    if (end == absl::string_view::npos) return Malformed("a quote is not closed");
    const absl::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return absl::CHexEscape(text);
  }

  absl::Status Value(const std::string& key) {
    if (key == "descr" && !std::exchange(has_descr_, true)) {
      rest_ = absl::StripLeadingAsciiWhitespace(rest_);
      if (!rest_.empty() && rest_[0] == '[') {
        return absl::InvalidArgumentError("dtype has fields; a plain one is needed");
      }
      OCTET_ASSIGN_OR_RETURN(descr_, String());
      return absl::OkStatus();
    }
    if (key == "fortran_order" && !std::exchange(has_fortran_, true)) {
      rest_ = absl::StripLeadingAsciiWhitespace(rest_);
      if (absl::ConsumePrefix(&rest_, "True")) {
        fortran_ = true;
      } else if (absl::ConsumePrefix(&rest_, "False")) {
        fortran_ = false;
      } else {
        return Malformed("'fortran_order' is neither True nor False");
      }
      return absl::OkStatus();
    }
    if (key == "shape" && !std::exchange(has_shape_, true)) return Shape();
    return Malformed(absl::StrCat("'", key.substr(0, 40), "' is unknown or there twice"));
  }

  absl::Status Shape() {
    if (!Take('(')) return Malformed("'shape' is not a tuple");
    std::vector<int64_t> shape;
    while (!Take(')')) {
      rest_ = absl::StripLeadingAsciiWhitespace(rest_);
      size_t digits = 0;
      while (digits < rest_.size() &&
             absl::ascii_isdigit(static_cast<unsigned char>(rest_[digits]))) {
        ++digits;
      }
      int64_t size = 0;
      if (digits == 0) return Malformed("'shape' has something else than whole numbers in it");
      if (!absl::SimpleAtoi(rest_.substr(0, digits), &size)) {
        return Malformed(absl::StrCat("'shape' has ", rest_.substr(0, std::min<size_t>(digits, 40)),
                                      " in it, which is too large"));
      }
      if (shape.size() == kMostDimensions) return Malformed("'shape' has too many dimensions");
      shape.push_back(size);
      rest_.remove_prefix(digits);
      absl::ConsumePrefix(&rest_, "L");  // Python 2's long integers
      if (Take(',')) continue;
      if (!Take(')')) return Malformed("'shape' is not closed");
      break;
    }
    shape_ = std::move(shape);
    return absl::OkStatus();
  }

  absl::string_view rest_;
  std::string descr_;
  bool fortran_ = false;
  std::vector<int64_t> shape_;
  bool has_descr_ = false;
  bool has_fortran_ = false;
  bool has_shape_ = false;
};

absl::StatusOr<NpyType> TypeOf(absl::string_view descr) {
  std::vector<absl::string_view> names;
  for (const TypeInfo& info : kTypes) {
    if (descr == info.descr) return info.type;
    if (!descr.empty() && descr[0] == '>' && descr.substr(1) == info.descr.substr(1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dtype is '", descr, "', big endian; little endian ('", info.descr, "') is needed"));
    }
    names.push_back(info.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype is '", descr.substr(0, 40), "'; it must be one of ", absl::StrJoin(names, ", ")));
}

uint32_t LittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Returns the bytes of an array; nullopt if an int64 cannot hold them.
std::optional<uint64_t> BytesOf(absl::Span<const int64_t> shape, size_t element) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  uint64_t bytes = element;
  for (const int64_t size : shape) {
    if (static_cast<uint64_t>(size) > kMost / bytes) return std::nullopt;
    bytes *= static_cast<uint64_t>(size);
  }
  return bytes;
}

}  // namespace

absl::string_view NpyTypeName(NpyType type) { return InfoOf(type).name; }
size_t NpyTypeBytes(NpyType type) { return InfoOf(type).bytes; }

absl::StatusOr<NpyArray> ParseNpy(absl::string_view file) {
  constexpr size_t kVersionBytes = 2;
  if (!absl::ConsumePrefix(&file, kMagic)) {
    return absl::InvalidArgumentError("not a .npy file: it does not begin with \\x93NUMPY");
  }
  if (file.size() < kVersionBytes) return Malformed("it is cut short");
  const auto major = static_cast<uint8_t>(file[0]);
  const auto minor = static_cast<uint8_t>(file[1]);
  file.remove_prefix(kVersionBytes);
  if (major < 1 || major > 3 || minor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(".npy format version ", major, ".", minor,
                                                   " is unknown; 1.0, 2.0 and 3.0 are read"));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (file.size() < length_bytes) return Malformed("it is cut short");
  const size_t header_bytes = LittleEndian(file.substr(0, length_bytes));
  file.remove_prefix(length_bytes);
  if (header_bytes > kMostHeaderBytes) {
    return Malformed(absl::StrCat("it claims to have ", header_bytes, " bytes, which is too long"));
  }
  if (header_bytes > file.size()) {
    return Malformed(absl::StrCat("it claims to have ", header_bytes, " bytes, but the file has ",
                                  file.size(), " more"));
  }
  HeaderParser header(file.substr(0, header_bytes));
  OCTET_RETURN_IF_ERROR(header.Parse());
  file.remove_prefix(header_bytes);

  NpyArray array;
  OCTET_ASSIGN_OR_RETURN(array.type, TypeOf(header.descr()));
  if (header.fortran()) {
    return absl::InvalidArgumentError(
        "array is in Fortran order; C order is needed (numpy.ascontiguousarray)");
  }
  array.shape = header.shape();
  const std::string shape = absl::StrCat("(", absl::StrJoin(array.shape, ", "), ")");
  const std::optional<uint64_t> bytes = BytesOf(array.shape, NpyTypeBytes(array.type));
  if (!bytes) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", shape, " is too large"));
  }
  if (*bytes != file.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape ", shape, " of ", NpyTypeName(array.type), " takes ", *bytes, " bytes, but ",
        file.size(), *bytes > file.size() ? " are there: the file is cut short" : " are there"));
  }
  array.data = std::string(file);
  return array;
}

absl::StatusOr<NpyArray> ReadNpy(const std::string& path, size_t most_bytes) {
  OCTET_ASSIGN_OR_RETURN(const std::string file, ReadFile(path, most_bytes));
  absl::StatusOr<NpyArray> array = ParseNpy(file);
  if (array.ok()) return array;
  return absl::Status(array.status().code(), absl::StrCat(path, ": ", array.status().message()));
}

std::string NpyHeader(NpyType type, absl::Span<const int64_t> shape) {
  std::string text =
      absl::StrCat("{'descr': '", InfoOf(type).descr, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  const size_t before = kMagic.size() + 4;
  const size_t unpadded = before + text.size() + 1;
  text.append((kHeaderAlignment - unpadded % kHeaderAlignment) % kHeaderAlignment, ' ');
  text.push_back('\n');
  std::string header(kMagic);
  header.push_back('\x01');
  header.push_back('\x00');
  header.push_back(static_cast<char>(text.size() & 0xff));
  header.push_back(static_cast<char>(text.size() >> 8));
  return header + text;
}

absl::Status WriteNpy(const std::string& path, NpyType type, absl::Span<const int64_t> shape,
                      const void* data) {
  const std::optional<uint64_t> bytes = BytesOf(shape, NpyTypeBytes(type));
  if (!bytes || shape.size() > kMostDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the shape is too large"));
  }
  const std::string header = NpyHeader(type, shape);
  const absl::string_view rows(static_cast<const char*>(data), *bytes);
  return WriteFileAtomically(path, {header, rows});
}

absl::StatusOr<std::vector<int32_t>> NpyToInt32(const NpyArray& array) {
  const size_t n = array.data.size() / NpyTypeBytes(array.type);
  std::vector<int32_t> values(n);
  if (array.type == NpyType::kInt32) {
    if (n > 0) std::memcpy(values.data(), array.data.data(), array.data.size());
    return values;
  }
  if (array.type != NpyType::kInt64) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype is ", NpyTypeName(array.type), "; int32 or int64 is needed"));
  }
  for (size_t i = 0; i < n; ++i) {
    int64_t value = 0;
    std::memcpy(&value, array.data.data() + i * sizeof(value), sizeof(value));
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("element ", i, " is ", value, ", which does not fit into int32"));
    }
    values[i] = static_cast<int32_t>(value);
  }
  return values;
}

}  // namespace octet
