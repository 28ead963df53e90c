#include "trireme/checkpoint/chunk/chunk.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {
namespace {

constexpr size_t kChecksumDigits = 16;

// Takes the word before the next space, or the rest.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
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

}  // namespace

std::vector<uint64_t> cut_into_chunks(const mesh::Box& box, size_t bytes_per_element) {
  uint64_t row_bytes = bytes_per_element;
  for (size_t d = 1; d < box.size.size(); ++d) row_bytes *= static_cast<uint64_t>(box.size[d]);
  const uint64_t num_rows = box.size.empty() ? 1 : static_cast<uint64_t>(box.size[0]);
  std::vector<uint64_t> chunks;
  if (row_bytes == 0) return chunks;
  if (row_bytes > kChunkBytes) {
    for (uint64_t left = num_rows * row_bytes; left > 0; left -= chunks.back())
      chunks.push_back(std::min(left, kChunkBytes));
    return chunks;
  }
  const uint64_t rows_per_chunk = kChunkBytes / row_bytes;
  const uint64_t first = box.offset.empty() ? 0 : static_cast<uint64_t>(box.offset[0]);
  for (uint64_t row = first; row < first + num_rows;) {
    const uint64_t end = std::min((row / rows_per_chunk + 1) * rows_per_chunk, first + num_rows);
    chunks.push_back((end - row) * row_bytes);
    row = end;
  }
  return chunks;
}

std::string to_text(const Chunk& chunk) {
  return concat(chunk.file, ' ', chunk.begin, ' ', chunk.stored_bytes, ' ', chunk.num_bytes, ' ',
                name_of(chunk.codec), ' ', to_text(chunk.digest),
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
  if (text.size() != digits || text.find_first_not_of("0123456789abcdef") != text.npos)
    return std::nullopt;
  chunk.stored_checksum = text;
  chunk.codec = *codec;
  chunk.digest = *digest;
  return chunk;
}

}  // namespace trireme::checkpoint::inline internal
