#include "trireme/dataset/file/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {
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
  // A record's type is a list, which is refused.
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

constexpr size_t kPieceBytes = size_t{1} << 18;

std::shared_ptr<const InputFile> open(const std::filesystem::path& path) {
  return as_config_error([&] { return std::make_shared<const InputFile>(path); });
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += concat(text.empty() ? "" : ", ", size);
  return concat("(", text, shape.size() == 1 ? ",)" : ")");
}

constexpr size_t kBytesAtOnce = size_t{1} << 20;

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

NpyArray::NpyArray(const std::filesystem::path& path, const NpyForm& form)
    : NpyArray(open(path), form) {}

NpyArray::NpyArray(const std::shared_ptr<const InputFile>& file, const NpyForm& form)
    : NpyArray(file, 0, file->num_bytes(), file->path().string(), form) {}

NpyArray::NpyArray(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size,
                   std::string name, const NpyForm& form)
    : file_(std::move(file)), name_(std::move(name)), begin_(begin) {
  std::string bytes(std::min<uint64_t>(size, kMaxNpyHeaderBytes), '\0');
  as_config_error([&] { file_->read(begin, std::as_writable_bytes(std::span(bytes))); });
  const NpyHeader header = parse_npy_header(bytes, name_);
  check_form(header, form);
  begin_ += header.num_bytes;
  const uint64_t num_bytes = size - header.num_bytes;
  // num_columns_ is small. The quotient is compared, because the product may not fit.
  TRIREME_CHECK(
      num_bytes % row_bytes() == 0 && num_bytes / row_bytes() == static_cast<uint64_t>(num_rows_),
      name_, " has ", num_bytes, " bytes behind its header, which says ", num_rows_, " rows of ",
      row_bytes(), " bytes: truncated or damaged; copy or prepare it again");
}

void NpyArray::check_form(const NpyHeader& header, const NpyForm& form) {
  std::vector<std::string> types;
  for (const NpyType type : form.types) {
    types.push_back(name_of(kNpyTypes, type));
    if (types.back() == header.type) type_ = type;
  }
  TRIREME_CHECK(std::ranges::find(types, header.type) != types.end(), name_,
                ": the numbers are of type \"", shown(header.type), "\"; expected ",
                in_words(types), ": save it again with array.astype(\"", types.front(), "\")");
  TRIREME_CHECK(!header.is_fortran_order, name_,
                ": the numbers are in Fortran's order; expected row after row: save it again with "
                "numpy.ascontiguousarray(array)");
  const std::string columns = form.min_columns == form.max_columns
                                  ? concat(form.min_columns)
                                  : concat(form.min_columns, " to ", form.max_columns);
  TRIREME_CHECK(header.shape.size() == 2 && header.shape[0] > 0 &&
                    header.shape[1] >= form.min_columns && header.shape[1] <= form.max_columns,
                name_, " has the shape ", shown(text_of(header.shape)),
                "; expected a row for each sample, at least one, and ", columns,
                form.max_columns == 1 ? " column" : " columns");
  num_rows_ = header.shape[0];
  num_columns_ = header.shape[1];
}

void NpyArray::read(int64_t first, std::span<std::byte> rows) const {
  const uint64_t offset = begin_ + static_cast<uint64_t>(first) * row_bytes();
  as_config_error([&] { file_->read(offset, rows); },
                  "; the data must stay as it is while it is prepared");
}

NpyRows::NpyRows(const NpyArray& array) : array_(&array), at_(0) {}

std::span<const std::byte> NpyRows::next() {
  const size_t size = array_->row_bytes();
  if (at_ == piece_.size()) {
    const int64_t left = array_->num_rows() - next_;
    TRIREME_ASSERT(left > 0, "a row behind the last");
    const auto count =
        std::min<int64_t>(left, static_cast<int64_t>(std::max<size_t>(1, kPieceBytes / size)));
    piece_.resize(static_cast<size_t>(count) * size);
    array_->read(next_, piece_);
    next_ += count;
    at_ = 0;
  }
  at_ += size;
  return std::span(piece_).subspan(at_ - size, size);
}

NpyWriter::NpyWriter(const std::filesystem::path& path, NpyType type, int64_t rows, int64_t columns)
    : file_(path),
      bytes_(make_npy_header(type, rows, columns)),
      row_bytes_(static_cast<size_t>(columns) * item_bytes(type)),
      rows_left_(rows) {}

void NpyWriter::add(std::span<const std::byte> row) {
  TRIREME_ASSERT(row.size() == row_bytes_ && rows_left_ > 0, "a row of ", row.size(), " bytes, ",
                 rows_left_, " rows before the end");
  --rows_left_;
  bytes_.append(reinterpret_cast<const char*>(row.data()), row.size());
  if (bytes_.size() >= kBytesAtOnce) flush();
}

void NpyWriter::flush() {
  file_.write(bytes_);
  num_bytes_ += std::ssize(bytes_);
  bytes_.clear();
}

int64_t NpyWriter::finish() {
  TRIREME_ASSERT(rows_left_ == 0, rows_left_, " rows are missing");
  flush();
  file_.commit();
  return num_bytes_;
}

}  // namespace trireme::dataset
