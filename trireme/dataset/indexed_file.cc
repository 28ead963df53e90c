#include "trireme/dataset/indexed_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <ranges>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr size_t kHeaderBytes = 34;
constexpr const char* kRemake = "; make the files again with `trireme data prepare`";

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

MappedFile map(const std::filesystem::path& path) {
  std::error_code failure;
  TRIREME_CHECK(std::filesystem::is_regular_file(path, failure), "token file ", path.string(),
                " does not exist: expected PREFIX.bin and PREFIX.idx",
                "; make them with `trireme data prepare --output PREFIX`");
  try {
    return MappedFile(path);
  } catch (const Error& error) {
    throw ConfigError(error.what());
  }
}

template <typename T>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = load<T>(from + i * sizeof(T));
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

IndexedFile::IndexedFile(const std::string& prefix)
    : prefix_(prefix), idx_(map(idx_path(prefix))), bin_(map(bin_path(prefix))) {
  check_header();
  const std::byte* base = idx_.bytes().data();
  type_ = static_cast<TokenType>(base[17]);
  const auto sequences = load<uint64_t>(base + 18);
  const auto boundaries = load<uint64_t>(base + 26);
  const std::string path = idx_path(prefix).string();
  // Bounded before they are multiplied: a corrupt count must not overflow the sum below.
  const uint64_t size = idx_.bytes().size();
  TRIREME_CHECK(sequences <= size && boundaries <= size && boundaries >= 1, path,
                " is damaged: ", sequences, " sequences and ", boundaries,
                " document boundaries do not fit in ", size, " bytes", kRemake);
  const uint64_t expected = kHeaderBytes + sequences * 12 + boundaries * 8;
  // Megatron's multimodal files append one byte a sequence.
  TRIREME_CHECK(size == expected || size == expected + sequences, path, " is ",
                size < expected ? "truncated" : "damaged", ": ", size, " bytes, expected ",
                expected, " for ", sequences, " sequences and ", boundaries, " document boundaries",
                kRemake);
  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(boundaries) - 1;
  lengths_ = base + kHeaderBytes;
  pointers_ = lengths_ + sequences * 4;
  documents_ = pointers_ + sequences * 8;
  check_sequences();
  check_documents();
  num_tokens_ = static_cast<int64_t>(bin_.bytes().size()) / token_type_bytes(type_);
}

void IndexedFile::check_header() const {
  const std::string path = idx_path(prefix_).string();
  const auto bytes = idx_.bytes();
  TRIREME_CHECK(!bytes.empty(), path, " is empty", kRemake);
  TRIREME_CHECK(bytes.size() >= kHeaderBytes, path, " is truncated: ", bytes.size(),
                " bytes, expected a header of ", kHeaderBytes, kRemake);
  TRIREME_CHECK(std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0, path,
                " is no token index: it does not begin with MMIDIDX", kRemake);
  const auto version = load<uint64_t>(bytes.data() + 9);
  TRIREME_CHECK(version == 1, path, " has version ", version, ", expected 1", kRemake);
  const int code = static_cast<int>(bytes[17]);
  TRIREME_CHECK(token_type_bytes(static_cast<TokenType>(code)) != 0, path, " has token type ", code,
                ", expected 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64 or 8 uint16", kRemake);
}

void IndexedFile::check_sequences() const {
  const std::string path = idx_path(prefix_).string();
  const int64_t token_bytes = token_type_bytes(type_);
  int64_t expected = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const auto length = load<int32_t>(lengths_ + i * 4);
    const auto pointer = load<int64_t>(pointers_ + i * 8);
    TRIREME_CHECK(length >= 0, path, " is damaged: sequence ", i, " has length ", length, kRemake);
    TRIREME_CHECK(pointer == expected, path, " is damaged: sequence ", i, " begins at byte ",
                  pointer, ", expected ", expected, kRemake);
    expected += length * token_bytes;
  }
  const auto size = static_cast<int64_t>(bin_.bytes().size());
  TRIREME_CHECK(size == expected, bin_path(prefix_).string(), " is ",
                size < expected ? "truncated" : "too long", ": ", size, " bytes, expected ",
                expected, " from ", path, kRemake);
}

void IndexedFile::check_documents() const {
  const std::string path = idx_path(prefix_).string();
  int64_t previous = 0;
  for (int64_t i = 0; i <= num_documents_; ++i) {
    const auto boundary = load<int64_t>(documents_ + i * 8);
    TRIREME_CHECK((i == 0 ? boundary == 0 : boundary >= previous) && boundary <= num_sequences_,
                  path, " is damaged: document ", i, " begins at sequence ", boundary, " of ",
                  num_sequences_, " after one at ", previous, kRemake);
    previous = boundary;
  }
  TRIREME_CHECK(previous == num_sequences_, path, " is damaged: its documents end at sequence ",
                previous, ", expected ", num_sequences_, kRemake);
}

int64_t IndexedFile::sequence_offset(int64_t index) const {
  if (index == num_sequences_) return num_tokens_;
  return load<int64_t>(pointers_ + index * 8) / token_type_bytes(type_);
}

IndexedFile::Extent IndexedFile::document(int64_t index) const {
  TRIREME_ASSERT(index >= 0 && index < num_documents_, "document ", index, " of ", num_documents_);
  const int64_t begin = sequence_offset(load<int64_t>(documents_ + index * 8));
  const int64_t end = sequence_offset(load<int64_t>(documents_ + (index + 1) * 8));
  return {begin, end - begin};
}

int64_t IndexedFile::document_at(int64_t offset) const {
  TRIREME_ASSERT(offset >= 0 && offset < num_tokens_, "token ", offset, " of ", num_tokens_);
  const auto indices = std::views::iota(int64_t{0}, num_documents_);
  const auto begin_of = [this](int64_t index) { return document(index).offset; };
  // Empty documents begin where the next one does: the last of them has the token.
  return std::ranges::upper_bound(indices, offset, {}, begin_of) - indices.begin() - 1;
}

void IndexedFile::read(int64_t offset, std::span<int64_t> out) const {
  const auto size = static_cast<int64_t>(out.size());
  TRIREME_ASSERT(offset >= 0 && size <= num_tokens_ && offset <= num_tokens_ - size, "tokens [",
                 offset, ", ", offset + size, ") of ", num_tokens_);
  const std::byte* from = bin_.bytes().data() + offset * token_type_bytes(type_);
  switch (type_) {
    case TokenType::kUint8: return widen<uint8_t>(from, out);
    case TokenType::kInt8: return widen<int8_t>(from, out);
    case TokenType::kInt16: return widen<int16_t>(from, out);
    case TokenType::kInt32: return widen<int32_t>(from, out);
    case TokenType::kInt64: return widen<int64_t>(from, out);
    case TokenType::kUint16: return widen<uint16_t>(from, out);
  }
}

}  // namespace trireme::dataset
