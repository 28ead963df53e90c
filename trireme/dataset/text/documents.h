// Finds the text files that become token files, and reads them piece by piece. Never holds a whole
// file in memory. Finds where text may be cut, and how much of it is well-formed: UTF-8 as defined
// in RFC 3629.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

// Length of the longest prefix that is well-formed UTF-8 without the characters that SentencePiece
// treats specially: NUL, U+2581 (a space) and U+2585 (an unknown character).
size_t plain_prefix(std::string_view text);

// Length of the longest prefix of at most `limit` bytes that ends after a line end; if there is
// none, that ends between two characters. Never 0 unless the text is empty or the limit 0.
size_t cut_length(std::string_view text, size_t limit);

// A file, or bytes [begin, end) of one.
struct Document {
  std::filesystem::path path;  // or the URL
  std::string name;            // path below its input; does not depend on where the input lies
  int64_t begin = 0;
  int64_t end = 0;
  bool is_pipe = false;  // of unknown size, and read only once: see keep_pipes()
  std::shared_ptr<const ByteSource> object{};  // of a store; null: a file of this machine

  int64_t size() const { return end - begin; }
  // For one reader, which goes from the beginning to the end: an object is read ahead.
  // Throws: ConfigError when the file cannot be read
  std::unique_ptr<ByteSource> open() const;
};

struct DocumentOptions {
  // Files, and folders that are read recursively; also URLs, those of folders with "/" at the end.
  std::vector<std::string> inputs = {};
  std::vector<std::string> globs =
      {};  // files in a folder must match one of these (*.py); none = all
  std::vector<std::string> excludes = {};           // names of files and folders to leave out
  std::vector<std::filesystem::path> ignored = {};  // paths of files to leave out (our own output)
  bool as_text = false;                             // takes what looks like another format as text
  std::shared_ptr<const FileStore> stores{};        // where URLs are; null: there may be none
};

// In the order of inputs, and by name within a folder. Leaves out empty files. Inside folders, also
// leaves out names that begin with a dot, symbolic links to folders, and anything but regular
// files.
// Throws: ConfigError when an input is missing, unreadable or, without as_text, not_text()
//         (file/text_lines.h), or nothing matches; what a store throws
std::vector<Document> find_documents(const DocumentOptions& options);

// Copies documents that are pipes, such as bash's <(...), into `folder`, and reads the copies from
// then on. Leaves out empty ones.
// Throws: as find_documents(); Error when the disk is full
void keep_pipes(std::vector<Document>& documents, const DocumentOptions& options,
                const std::filesystem::path& folder);

// Reads a document from its beginning to its end.
class DocumentReader {
 public:
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;

  // Throws: ConfigError when the file cannot be read
  explicit DocumentReader(const Document& document, int64_t piece_bytes = kPieceBytes);

  // The next bytes, at most piece_bytes. They end at a line end if there is one, else between UTF-8
  // characters. Empty at the end.
  // Throws: ConfigError when the file has become shorter or cannot be read
  std::string next();

 private:
  std::unique_ptr<ByteSource> file_;
  int64_t piece_bytes_;
  std::string rest_;  // read, but not yet handed out
  int64_t unread_ = 0;
  int64_t end_ = 0;
};

}  // namespace trireme::dataset
