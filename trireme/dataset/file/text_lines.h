// The lines of a text file, read in pieces. Keeps one line at a time. The user's file may be
// compressed, and its text comes in pieces too (compressed_text.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/file/compressed_text.h"

namespace trireme::dataset {

// Who wrote a file. The user's may be compressed. Ours may begin with the same bytes,
// such as a dictionary whose first category is "BZhang". In front of the user's text a byte order
// mark of UTF-8, as of spreadsheets, is skipped.
enum class TextOrigin { kUser, kOwn };

// Of a line, unless the reader asks for longer ones.
inline constexpr size_t kMaxLineBytes = size_t{1} << 20;

// Whether a line has nothing but spaces and tabs.
bool is_blank_line(std::string_view line);

class TextLines {
 public:
  // Throws: ConfigError with the path when there is no such file, it is empty, or the user's is
  //         compressed in a way that this build does not read
  explicit TextLines(const std::filesystem::path& path, TextOrigin origin = TextOrigin::kUser,
                     size_t max_line_bytes = kMaxLineBytes);
  explicit TextLines(std::unique_ptr<ByteSource> file, TextOrigin origin = TextOrigin::kUser,
                     size_t max_line_bytes = kMaxLineBytes);

  TextLines(const TextLines&) = delete;
  TextLines& operator=(const TextLines&) = delete;

  // The next line without its end, "\n" or "\r\n". False after the last. The view is valid until
  // the next call.
  // Throws: ConfigError with where() for a line of more than max_line_bytes, with the path for
  //         damage
  bool next(std::string_view& line);

  int64_t number() const { return number_; }  // of the line, from 1
  // Size of the file as stored.
  int64_t num_bytes() const { return static_cast<int64_t>(file_->num_bytes()); }
  int64_t num_read() const { return static_cast<int64_t>(packed_ ? read_ : read_ - (end_ - at_)); }
  // "day_0.tsv:12"
  std::string where() const;

 private:
  bool fill();
  size_t read_stored(std::span<std::byte> out);

  std::unique_ptr<ByteSource> file_;
  size_t max_line_bytes_;
  std::unique_ptr<CompressedText> packed_{};
  std::string_view text() const { return std::string_view(room_).substr(0, end_); }

  std::string room_{};  // its first end_ bytes are text; unread lines begin at at_
  size_t at_ = 0, end_ = 0;
  uint64_t read_ = 0;  // bytes of the file
  int64_t number_ = 0;
};

// Cuts at every separator; an empty text has one empty field.
void split_fields(std::string_view text, char separator, std::vector<std::string_view>& fields);

// Detects the format of a file given as text: compressed, a table, JSON lines. Uses its first bytes
// and its name.

// So many bytes of a file are enough; fewer only when it has no more.
inline constexpr size_t kFormatHeadBytes = size_t{64} << 10;

// "gzip", "zstd", "xz", "lz4" or "bzip2"; "" for anything else.
std::string_view compression_of(std::string_view head);

// Explains how to use a file that is not plain text: "is compressed with gzip: unpack it". It
// follows the file's name in a message. "" for text. JSON lines: objects, one in each of the first
// lines. A single object is text, as source code has it, unless the name ends in .jsonl or .ndjson.
// A table: .csv or .tsv, or 8 lines with the same number of separators, at least 2.
std::string not_text(std::string_view name, std::string_view head);

}  // namespace trireme::dataset
