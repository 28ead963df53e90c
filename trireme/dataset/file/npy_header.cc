#include "trireme/dataset/file/npy_header.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::dataset::inline internal {
namespace {

static_assert(std::endian::native == std::endian::little, "the sizes are little-endian");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionAt = 6, kSizeAt = 8;
constexpr size_t kAlignment = 64;
constexpr size_t kMaxDims = 64;  // NumPy's own limit

// The text of the header: a literal of a Python dict with the keys descr, fortran_order and shape.
class Literal {
 public:
  Literal(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    std::vector<std::string_view> keys;
    expect('{');
    while (!take('}')) {
      keys.push_back(word());
      if (std::ranges::count(keys, keys.back()) > 1) fail("a key only once");
      expect(':');
      if (keys.back() == "descr") {
        header.type = type();
      } else if (keys.back() == "fortran_order") {
        header.is_fortran_order = boolean();
      } else if (keys.back() == "shape") {
        header.shape = shape();
      } else {
        fail("the keys descr, fortran_order and shape");
      }
      if (!take(',') && !rest_.starts_with('}')) fail("a comma or the end of the dict");
    }
    skip_spaces();
    if (!rest_.empty() || keys.size() != 3) fail("a dict of descr, fortran_order and shape");
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw ConfigError(concat(name_, ": the header of the array goes on with \"", shown(rest_),
                             "\"; expected ", expected,
                             ", as numpy.save writes it: save the array again"));
  }
  void skip_spaces() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size()));
  }
  bool take(char c) {
    skip_spaces();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    skip_spaces();
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(concat("\"", c, "\""));
  }
  std::string_view word() {
    const char quote = rest_.empty() ? '\0' : rest_.front();
    const size_t end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : std::string::npos;
    if (end == std::string::npos) fail("a word in quotes");
    const std::string_view word = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    skip_spaces();
    return word;
  }
  // Of a record, whose type is a list, the caller needs no more than that it is one.
  std::string type() {
    if (!rest_.starts_with('[')) return std::string(word());
    throw ConfigError(concat(name_, ": the array has records, ", shown(rest_),
                             "; expected plain numbers: save its columns as an array"));
  }
  bool boolean() {
    const bool value = rest_.starts_with("True");
    if (!value && !rest_.starts_with("False")) fail("True or False");
    rest_.remove_prefix(value ? 4 : 5);
    return value;
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> shape;
    expect('(');
    while (!take(')')) {
      int64_t size = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0 || shape.size() == kMaxDims) {
        fail(concat("at most ", kMaxDims, " sizes from 0 to 2^63 - 1"));
      }
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      shape.push_back(size);
      if (!take(',') && !rest_.starts_with(')')) fail("a comma or the end of the shape");
    }
    return shape;
  }

  std::string_view rest_;
  const std::string& name_;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view bytes, const std::string& name) {
  TRIREME_CHECK(bytes.starts_with(kMagic) && bytes.size() >= kSizeAt, name,
                " is not an array of NumPy; expected what numpy.save writes");
  const int version = static_cast<uint8_t>(bytes[kVersionAt]);
  const int minor = static_cast<uint8_t>(bytes[kVersionAt + 1]);
  TRIREME_CHECK(version >= 1 && version <= 3 && minor == 0, name,
                " is an array of NumPy in version ", version, ".", minor,
                " of the format; expected 1.0, 2.0 or 3.0: save it with numpy.save");
  const size_t size_bytes = version == 1 ? sizeof(uint16_t) : sizeof(uint32_t);
  const size_t begin = kSizeAt + size_bytes;
  uint32_t size = 0;
  TRIREME_CHECK(bytes.size() >= begin, name, " has ", bytes.size(),
                " bytes; expected a longer header: truncated");
  std::memcpy(&size, bytes.data() + kSizeAt, size_bytes);
  TRIREME_CHECK(size <= kMaxNpyHeaderBytes - begin, name, ": the header of the array has ", size,
                " bytes; expected at most ", kMaxNpyHeaderBytes - begin, ": damaged");
  TRIREME_CHECK(size <= bytes.size() - begin, name, ": the header of the array has ", size,
                " bytes, of which ", bytes.size() - begin, " are there: truncated");
  NpyHeader header = Literal(bytes.substr(begin, size), name).parse();
  header.num_bytes = begin + size;
  return header;
}

std::string make_npy_header(NpyType type, int64_t rows, int64_t columns) {
  std::string text = concat("{'descr': '", name_of(kNpyTypes, type),
                            "', 'fortran_order': False, 'shape': (", rows, ", ", columns, "), }");
  const size_t begin = kSizeAt + sizeof(uint16_t);
  const size_t used = (begin + text.size() + 1) % kAlignment;
  text.append((kAlignment - used) % kAlignment, ' ');
  text += '\n';
  const auto size = static_cast<uint16_t>(text.size());
  std::string header = concat(kMagic, '\1', '\0', "  ");
  std::memcpy(header.data() + kSizeAt, &size, sizeof(size));
  return header + text;
}

}  // namespace trireme::dataset::inline internal
