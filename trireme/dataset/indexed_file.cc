#include "trireme/dataset/indexed_file.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {
namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr size_t kHeaderBytes = 34;
constexpr const char* kRemake = "; make the files again with `trireme data prepare`";

std::unique_ptr<const ByteSource> find_file(const std::filesystem::path& path,
                                            const FilePlace& place) {
  return as_config_error([&] { return place.find(path.string()); }, kRemake);
}

void check_is_there(const ByteSource* file, const std::filesystem::path& path) {
  TRIREME_CHECK(file != nullptr, "token file ", path.string(),
                " does not exist: expected PREFIX.bin and PREFIX.idx",
                "; make them with `trireme data prepare --output PREFIX`");
}

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Reads a table of numbers in a file block by block.
template <typename T>
class Table {
 public:
  Table(const ByteSource& file, uint64_t begin, int64_t size)
      : file_(file), begin_(begin), size_(size) {}

  // Indices must not decrease.
  T at(int64_t index) {
    if (index >= block_begin_ + std::ssize(block_)) {
      block_begin_ = index;
      block_.resize(static_cast<size_t>(std::min(kBlock, size_ - index)));
      file_.read(begin_ + static_cast<uint64_t>(index) * sizeof(T),
                 std::as_writable_bytes(std::span(block_)));
    }
    return block_[static_cast<size_t>(index - block_begin_)];
  }

  // Both are read for the first time.
  bool equals(Table other) {
    for (int64_t i = 0; i < size_; ++i) {
      if (at(i) != other.at(i)) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kBlock = 65536;
  const ByteSource& file_;
  uint64_t begin_;
  int64_t size_;
  int64_t block_begin_ = 0;
  std::vector<T> block_;
};

// Converts tokens of type T in the last bytes of `out` so that they fill `out`. Each is read before
// it is overwritten.
template <typename T>
void widen_in_place(std::span<int64_t> out) {
  const auto* from =
      reinterpret_cast<const std::byte*>(out.data() + out.size()) - out.size() * sizeof(T);
  for (size_t i = 0; i < out.size(); ++i) out[i] = int64_t{load<T>(from + i * sizeof(T))};
}

}  // namespace

std::filesystem::path bin_path(const std::string& prefix) { return prefix + ".bin"; }
std::filesystem::path idx_path(const std::string& prefix) { return prefix + ".idx"; }

int token_type_bytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8: return 1;
    case TokenType::kInt16:
    case TokenType::kUint16: return 2;
    case TokenType::kInt32: return 4;
    case TokenType::kInt64: return 8;
  }
  return 0;
}

TokenType token_type_for(int64_t vocab_size) {
  constexpr int64_t kFirstInt32 = 65500;
  return vocab_size < kFirstInt32 ? TokenType::kUint16 : TokenType::kInt32;
}

IndexedFile::IndexedFile(const std::string& prefix, const FilePlace& place)
    : IndexedFile(prefix, find_file(idx_path(prefix), place), find_file(bin_path(prefix), place)) {}

std::shared_ptr<const IndexedFile> IndexedFile::find(const std::string& prefix,
                                                     const FilePlace& place) {
  File idx = find_file(idx_path(prefix), place), bin = find_file(bin_path(prefix), place);
  if (!idx && !bin) return nullptr;
  return std::shared_ptr<const IndexedFile>(
      new IndexedFile(prefix, std::move(idx), std::move(bin)));
}

IndexedFile::IndexedFile(const std::string& prefix, File idx, File bin)
    : prefix_(prefix), idx_(std::move(idx)), bin_(std::move(bin)) {
  check_is_there(idx_.get(), idx_path(prefix));
  check_is_there(bin_.get(), bin_path(prefix));
  const auto check = [this] {
    // It is read for the checks below, for its checksum, and again for every document.
    if (is_url(idx_->name()) && idx_->num_bytes() <= kMostKeptIndexBytes)
      idx_ = kept_in_memory(*idx_);
    read_header();
    check_sequences();
    check_documents();
  };
  as_config_error(check, kRemake);
}

void IndexedFile::read_header() {
  const std::string path = idx_->name();
  const uint64_t size = idx_->num_bytes();
  TRIREME_CHECK(size > 0, path, " is empty", kRemake);
  TRIREME_CHECK(size >= kHeaderBytes, path, " is truncated: ", size,
                " bytes, expected a header of ", kHeaderBytes, kRemake);
  std::byte header[kHeaderBytes];
  idx_->read(0, header);
  TRIREME_CHECK(std::memcmp(header, kMagic, sizeof(kMagic)) == 0, path,
                " is not a token index: it does not begin with MMIDIDX", kRemake);
  const auto version = load<uint64_t>(header + 9);
  TRIREME_CHECK(version == 1, path, " has version ", version, ", expected 1", kRemake);
  const int code = static_cast<int>(header[17]);
  type_ = static_cast<TokenType>(code);
  TRIREME_CHECK(token_type_bytes(type_) != 0, path, " has token type ", code,
                ", expected 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64 or 8 uint16", kRemake);
  const auto sequences = load<uint64_t>(header + 18);
  const auto boundaries = load<uint64_t>(header + 26);
  // Bound the counts before multiplying them, so that a corrupt one does not overflow the sum
  // below.
  TRIREME_CHECK(sequences <= size && boundaries <= size && boundaries >= 1, path,
                " is damaged: ", sequences, " sequences and ", boundaries,
                " document boundaries do not fit in ", size, " bytes", kRemake);
  const uint64_t expected = kHeaderBytes + sequences * 12 + boundaries * 8;
  // Megatron's multimodal files append one byte per sequence.
  TRIREME_CHECK(size == expected || size == expected + sequences, path, " is ",
                size < expected ? "truncated" : "damaged", ": ", size, " bytes, expected ",
                expected, " for ", sequences, " sequences and ", boundaries, " document boundaries",
                kRemake);
  num_tokens_ = static_cast<int64_t>(bin_->num_bytes()) / token_type_bytes(type_);
  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(boundaries) - 1;
  lengths_ = kHeaderBytes;
  pointers_ = lengths_ + sequences * 4;
  documents_ = pointers_ + sequences * 8;
}

void IndexedFile::check_sequences() const {
  const std::string path = idx_->name();
  const int64_t token_bytes = token_type_bytes(type_);
  Table<int32_t> lengths(*idx_, lengths_, num_sequences_);
  Table<int64_t> pointers(*idx_, pointers_, num_sequences_);
  int64_t expected = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int32_t length = lengths.at(i);
    const int64_t pointer = pointers.at(i);
    TRIREME_CHECK(length >= 0, path, " is damaged: sequence ", i, " has length ", length, kRemake);
    TRIREME_CHECK(pointer == expected, path, " is damaged: sequence ", i, " begins at byte ",
                  pointer, ", expected ", expected, kRemake);
    expected += length * token_bytes;
  }
  const auto size = static_cast<int64_t>(bin_->num_bytes());
  TRIREME_CHECK(size == expected, bin_->name(), " is ", size < expected ? "truncated" : "too long",
                ": ", size, " bytes, expected ", expected, " from ", path, kRemake);
}

void IndexedFile::check_documents() {
  const std::string path = idx_->name();
  Table<int64_t> boundaries(*idx_, documents_, num_documents_ + 1);
  int64_t previous = 0;
  for (int64_t i = 0; i <= num_documents_; ++i) {
    const int64_t boundary = boundaries.at(i);
    TRIREME_CHECK((i == 0 ? boundary == 0 : boundary >= previous) && boundary <= num_sequences_,
                  path, " is damaged: document ", i, " begins at sequence ", boundary, " of ",
                  num_sequences_, " after one at ", previous, kRemake);
    if (i % kBlock == 0) block_offsets_.push_back(sequence_offset(boundary));
    previous = boundary;
  }
  TRIREME_CHECK(previous == num_sequences_, path, " is damaged: its documents end at sequence ",
                previous, ", expected ", num_sequences_, kRemake);
}

template <typename T>
T IndexedFile::number(uint64_t table, int64_t index) const {
  std::byte bytes[sizeof(T)];
  as_config_error([&] { idx_->read(table + static_cast<uint64_t>(index) * sizeof(T), bytes); },
                  kRemake);
  return load<T>(bytes);
}

int64_t IndexedFile::sequence_offset(int64_t index) const {
  if (index == num_sequences_) return num_tokens_;
  return number<int64_t>(pointers_, index) / token_type_bytes(type_);
}

IndexedFile::Extent IndexedFile::document(int64_t index) const {
  TRIREME_ASSERT(index >= 0 && index < num_documents_, "document ", index, " of ", num_documents_);
  // Checked when the file was opened, but read again now, and the file may have changed.
  const auto check = [this](int64_t first, int64_t last, int64_t end) {
    TRIREME_CHECK(first >= 0 && first <= last && last <= end, idx_->name(),
                  " changed while it was read: a document from ", first, " to ", last, " of ", end,
                  kRemake);
  };
  const auto first = number<int64_t>(documents_, index);
  const auto last = number<int64_t>(documents_, index + 1);
  check(first, last, num_sequences_);
  const int64_t begin = sequence_offset(first);
  const int64_t end = sequence_offset(last);
  check(begin, end, num_tokens_);
  return {begin, end - begin};
}

int64_t IndexedFile::document_at(int64_t offset) const {
  TRIREME_ASSERT(offset >= 0 && offset < num_tokens_, "token ", offset, " of ", num_tokens_);
  const auto block = std::ranges::upper_bound(block_offsets_, offset) - block_offsets_.begin() - 1;
  const int64_t first = block * kBlock;
  const auto indices = std::views::iota(first, std::min(first + kBlock, num_documents_));
  const auto begin_of = [this](int64_t index) { return document(index).offset; };
  // Empty documents begin where the next one does. The last of these documents has the token.
  const int64_t index =
      first + (std::ranges::upper_bound(indices, offset, {}, begin_of) - indices.begin()) - 1;
  TRIREME_CHECK(index >= 0, idx_->name(), " changed while it was read: no document has token ",
                offset, kRemake);
  return index;
}

void IndexedFile::read(int64_t offset, std::span<int64_t> out) const {
  const auto size = static_cast<int64_t>(out.size());
  TRIREME_ASSERT(offset >= 0 && size <= num_tokens_ && offset <= num_tokens_ - size, "tokens [",
                 offset, ", ", offset + size, ") of ", num_tokens_);
  const auto token_bytes = static_cast<size_t>(token_type_bytes(type_));
  const std::span<std::byte> bytes = std::as_writable_bytes(out);
  const auto read = [&] {
    bin_->read(static_cast<uint64_t>(offset) * token_bytes, bytes.last(out.size() * token_bytes));
  };
  as_config_error(read, kRemake);
  switch (type_) {
    case TokenType::kUint8: return widen_in_place<uint8_t>(out);
    case TokenType::kInt8: return widen_in_place<int8_t>(out);
    case TokenType::kInt16: return widen_in_place<int16_t>(out);
    case TokenType::kInt32: return widen_in_place<int32_t>(out);
    case TokenType::kInt64: return;
    case TokenType::kUint16: return widen_in_place<uint16_t>(out);
  }
}

std::vector<int64_t> IndexedFile::document_sizes() const {
  std::vector<int64_t> sizes(static_cast<size_t>(num_documents_));
  const auto read = [&] {
    Table<int64_t> boundaries(*idx_, documents_, num_documents_ + 1);
    Table<int32_t> lengths(*idx_, lengths_, num_sequences_);
    int64_t sequence = 0;
    for (int64_t i = 0; i < num_documents_; ++i) {
      const int64_t end = boundaries.at(i + 1);
      // Checked when the file was opened, but read again now, and the file may have changed.
      TRIREME_CHECK(end >= sequence && end <= num_sequences_, idx_->name(),
                    " changed while it was read: document ", i, " ends at sequence ", end, " of ",
                    num_sequences_, kRemake);
      for (; sequence < end; ++sequence) {
        const int32_t length = lengths.at(sequence);
        TRIREME_CHECK(length >= 0, idx_->name(), " changed while it was read: sequence ", sequence,
                      " has ", length, " tokens", kRemake);
        sizes[static_cast<size_t>(i)] += length;
      }
    }
  };
  as_config_error(read, kRemake);
  return sizes;
}

std::string IndexedFile::index_checksum() const {
  return as_config_error([this] { return checksum(*idx_); }, kRemake);
}

bool IndexedFile::has_documents_of(const IndexedFile& other) const {
  if (num_sequences_ != other.num_sequences_ || num_documents_ != other.num_documents_) {
    return false;
  }
  const auto compare = [&] {
    return Table<int32_t>(*idx_, lengths_, num_sequences_)
               .equals(Table<int32_t>(*other.idx_, other.lengths_, num_sequences_)) &&
           Table<int64_t>(*idx_, documents_, num_documents_ + 1)
               .equals(Table<int64_t>(*other.idx_, other.documents_, num_documents_ + 1));
  };
  return as_config_error(compare, kRemake);
}

}  // namespace trireme::dataset
