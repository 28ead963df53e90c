#include "trireme/checkpoint/chunk/chunk.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

constexpr size_t kChecksumDigits = 16;

// Takes the word before the next space, or the rest.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  // So a text that ends in a blank leaves something behind and is refused.
  if (text.size() > 1) text.remove_prefix(1);  // a space at the end is left, and too much
  return word;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const std::string_view word = take_word(text);
  const char* const begin = word.data();
  const char* const end = begin + word.size();
  const auto parsed = std::from_chars(begin, end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

// 16 KiB of row numbers: as small as a chunk may be without many of them for a patch.
constexpr int64_t kRowsPerChunk = 2048;

}  // namespace

std::vector<uint64_t> cut_into_chunks(const mesh::Box& box, size_t bytes_per_element) {
  uint64_t row_bytes = bytes_per_element;
  for (size_t d = 1; d < box.size.size(); ++d) row_bytes *= static_cast<uint64_t>(box.size[d]);
  const uint64_t num_rows = box.size.empty() ? 1 : static_cast<uint64_t>(box.size[0]);
  std::vector<uint64_t> chunks;
  if (row_bytes == 0) return chunks;
  // The largest unit that can be hashed alone, whatever the row's length.
  if (row_bytes > kChunkBytes) {
    for (uint64_t left = num_rows * row_bytes; left > 0; left -= chunks.back())
      chunks.push_back(std::min(left, kChunkBytes));
    return chunks;
  }
  const uint64_t rows_per_chunk = kChunkBytes / row_bytes;
  const uint64_t first = box.offset.empty() ? 0 : static_cast<uint64_t>(box.offset[0]);
  for (uint64_t row = first; row < first + num_rows;) {
    // At multiples of rows_per_chunk in the whole tensor and not in the box: another layout then
    // has the same chunks.
    const uint64_t end = std::min((row / rows_per_chunk + 1) * rows_per_chunk, first + num_rows);
    chunks.push_back((end - row) * row_bytes);
    row = end;
  }
  return chunks;
}

std::string to_text(const Chunk& chunk) {
  return concat(chunk.file, ' ', chunk.begin, ' ', chunk.stored_bytes, ' ', chunk.num_bytes, ' ',
                name_of(chunk.codec), ' ', to_text(chunk.digest),
                // A raw chunk's digest covers its stored bytes already.
                chunk.codec == Codec::kRaw ? "" : " ", chunk.stored_checksum);
}

std::optional<Chunk> parse_chunk(std::string_view text) {
  Chunk chunk;
  if (!take_number(text, chunk.file) || !take_number(text, chunk.begin) ||
      !take_number(text, chunk.stored_bytes) || !take_number(text, chunk.num_bytes))
    return std::nullopt;
  const auto codec = parse_codec(take_word(text));
  const auto digest = parse_digest(take_word(text));
  if (!codec || !digest) return std::nullopt;
  const size_t digits = *codec == Codec::kRaw ? 0 : kChecksumDigits;
  // A checksum is compared as text, so only one spelling may be there.
  if (text.size() != digits || text.find_first_not_of("0123456789abcdef") != text.npos)
    return std::nullopt;
  chunk.stored_checksum = text;
  chunk.codec = *codec;
  chunk.digest = *digest;
  return chunk;
}

int64_t Patch::num_rows() const {
  uint64_t num_bytes = 0;
  for (const Chunk& chunk : rows) num_bytes += chunk.num_bytes;
  return static_cast<int64_t>(num_bytes / kRowNumberBytes);
}

uint64_t row_bytes_of(const mesh::Box& box, size_t bytes_per_element) {
  if (box.size.empty()) return 0;
  uint64_t num_bytes = bytes_per_element;
  for (size_t d = 1; d < box.size.size(); ++d) num_bytes *= static_cast<uint64_t>(box.size[d]);
  return num_bytes;
}

int64_t rows_per_chunk(uint64_t row_bytes) {
  // At least one row, even if it has more bytes than a chunk; patch_error() refuses such rows when
  // they are read.
  return std::clamp<int64_t>(static_cast<int64_t>(kChunkBytes / std::max<uint64_t>(row_bytes, 1)),
                             1, kRowsPerChunk);
}

std::string patch_error(const Patch& patch, uint64_t row_bytes, int64_t rows_left) {
  // A row must fit into a chunk: patches are pairs of chunks.
  if (row_bytes == 0 || row_bytes > kChunkBytes)
    return concat("has rows of ", row_bytes, " bytes, expected 1 to ", kChunkBytes);
  if (patch.rows.empty() || patch.rows.size() != patch.values.size())
    return concat("has ", patch.rows.size(), " chunks of rows and ", patch.values.size(),
                  " of values, expected one or more of each, as many of both");
  for (size_t i = 0; i < patch.rows.size(); ++i) {
    const uint64_t num_bytes = patch.rows[i].num_bytes, count = num_bytes / kRowNumberBytes;
    if (num_bytes % kRowNumberBytes != 0)
      return concat("has a chunk of rows of ", num_bytes, " bytes, expected 8 for each row");
    if (patch.values[i].num_bytes != count * row_bytes)
      return concat("has ", patch.values[i].num_bytes, " bytes of values for ", count,
                    " rows, expected ", row_bytes, " for each");
  }
  // Without this bound, patches of one row each could make a load read any number of bytes.
  if (patch.num_rows() > rows_left)
    return concat("has ", patch.num_rows(), " rows where at most ", rows_left, " can be");
  return "";
}

std::string take_rows(std::span<const std::byte> bytes, const mesh::Box& box,
                      std::vector<int64_t>& rows) {
  const int64_t begin = box.offset.at(0), end = begin + box.size.at(0);
  for (size_t at = 0; at + kRowNumberBytes <= bytes.size(); at += kRowNumberBytes) {
    int64_t row = 0;
    std::memcpy(&row, bytes.data() + at, kRowNumberBytes);
    // Also what a right digest cannot tell: these are indices into memory.
    if (row < begin || row >= end)
      return concat("row ", row, " is outside the rows ", begin, " to ", end - 1, " of its piece");
    // Ascending, so a load can search them, and a row comes once.
    if (!rows.empty() && row <= rows.back())
      return concat("row ", row, " comes after row ", rows.back(), ", expected ascending rows");
    rows.push_back(row);
  }
  return "";
}

}  // namespace trireme::checkpoint
