// Finds the text files that become token files, and reads them piece by piece. Never holds a whole
// file in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace trireme::dataset::inline internal {

// A file, or bytes [begin, end) of one.
struct Document {
  std::filesystem::path path;
  std::string name;  // path below its input; does not depend on where the input lies
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

struct DocumentOptions {
  std::vector<std::string> inputs = {};  // files, and folders that are read recursively
  std::vector<std::string> globs =
      {};  // files in a folder must match one of these (*.py); none = all
  std::vector<std::string> excludes = {};           // names of files and folders to leave out
  std::vector<std::filesystem::path> ignored = {};  // paths of files to leave out (our own output)
};

// In the order of inputs, and by name within a folder. Leaves out empty files. Inside folders, also
// leaves out names that begin with a dot, symbolic links to folders, and anything but regular
// files.
// Throws: ConfigError when an input is missing or unreadable, or nothing matches
std::vector<Document> find_documents(const DocumentOptions& options);

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
  Document document_;
  int64_t piece_bytes_;
  std::ifstream file_;
  std::string rest_;  // read, but not yet handed out
  int64_t unread_ = 0;
};

}  // namespace trireme::dataset::inline internal
