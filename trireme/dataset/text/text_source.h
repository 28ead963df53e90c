// The texts of documents, as data preparation reads them from files (file_texts.h) or from rows
// (row_texts.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/digest.h"

namespace trireme::dataset {

// A document, or a piece of one.
struct DocumentText {
  std::string_view text{};     // in the memory of its batch
  bool is_last = true;         // piece of its document
  bool is_validation = false;  // for which its document is
  Digest digest{};             // of the document; only of rows, for those that ask for it
  std::string problem{};       // why there is no text, in a row that cannot be used
  int64_t num_read = 0;        // bytes of the files, as stored, up to its end
};

struct TextBatch {
  std::vector<DocumentText> texts{};
  std::deque<std::string> memory{};  // which stays where it is when the batch is moved
};

// About how much text a batch has, unless one piece has more.
inline constexpr size_t kTextBatchBytes = size_t{1} << 20;

class TextSource {
 public:
  virtual ~TextSource() = default;

  // What reads the next texts, in order. It may be called on another thread, once, while this goes
  // on, and needs nothing of it but that it lives. Empty at the end.
  // Throws: ConfigError when a file cannot be read
  virtual std::function<TextBatch()> next() = 0;
  // Of the files, as stored.
  virtual int64_t num_bytes() const = 0;
  // Of these, up to the end of the last batch.
  virtual int64_t num_read() const = 0;
};

}  // namespace trireme::dataset
