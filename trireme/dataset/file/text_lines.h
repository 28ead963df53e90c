// The lines of a text file, read in pieces. Keeps one line at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/file.h"

namespace trireme::dataset::inline internal {

// Who wrote a file. The user's may be compressed by mistake. Ours may begin with the same bytes,
// such as a dictionary whose first category is "BZhang". In front of the user's text a byte order
// mark of UTF-8, as of spreadsheets, is skipped.
enum class TextOrigin { kUser, kOwn };

class TextLines {
 public:
  // Throws: ConfigError with the path when there is no such file, it is empty, or the user's is
  //         compressed
  explicit TextLines(const std::filesystem::path& path, TextOrigin origin = TextOrigin::kUser);

  // The next line without its end, "\n" or "\r\n". False after the last. The view is valid until
  // the next call.
  // Throws: ConfigError with where() for a line of more than a megabyte
  bool next(std::string_view& line);

  int64_t number() const { return number_; }  // of the line, from 1
  int64_t num_bytes() const { return static_cast<int64_t>(file_.num_bytes()); }
  int64_t num_read() const { return static_cast<int64_t>(read_ - (text_.size() - at_)); }
  // "day_0.tsv:12"
  std::string where() const;

 private:
  bool fill();

  InputFile file_;
  std::string text_{};  // read, of which the lines begin at at_
  size_t at_ = 0;
  uint64_t read_ = 0;  // bytes of the file
  int64_t number_ = 0;
};

// Cuts at every separator; an empty text has one empty field.
void split_fields(std::string_view text, char separator, std::vector<std::string_view>& fields);

}  // namespace trireme::dataset::inline internal
