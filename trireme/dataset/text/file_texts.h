// Files as documents: which of them are for validation, and their texts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/file/digest.h"
#include "trireme/dataset/text/documents.h"
#include "trireme/dataset/text/text_source.h"

namespace trireme::dataset {

struct FileSplit {
  std::vector<Document> training;
  std::vector<Document> validation;
};

// Validation documents are drawn by (seed, name), at least one on either side. Of a single document
// it is the tail, from a line end on.
// Throws: ConfigError when a single document is too short
FileSplit split_files(std::vector<Document> documents, double fraction, uint64_t seed);

// The same, drawn by (seed, text); files with one text are on one side.
// texts: the digests of the documents
// Throws: ConfigError also when all texts are the same
FileSplit split_files_by_text(std::vector<Document> documents, const std::vector<Digest>& texts,
                              double fraction, uint64_t seed);

// Reads the text of each. The digests are those of digest_of_text().
// Throws: ConfigError when a file cannot be read
std::vector<Digest> digests_of(const std::vector<Document>& documents);

// Removes documents whose text an earlier one has, and their digests. Returns how many.
int64_t remove_repeated(std::vector<Document>& documents, std::vector<Digest>& texts);

// Those for training, then those for validation.
class FileTexts : public TextSource {
 public:
  // split: outlives this
  explicit FileTexts(const FileSplit& split);
  std::function<TextBatch()> next() override;
  int64_t num_bytes() const override { return num_bytes_; }
  int64_t num_read() const override { return num_read_; }

 private:
  const std::vector<Document>& documents() const {
    return is_validation_ ? split_.validation : split_.training;
  }

  const FileSplit& split_;
  int64_t num_bytes_ = 0;
  bool is_validation_ = false;
  size_t index_ = 0;
  std::unique_ptr<DocumentReader> reader_{};
  std::string piece_{};  // the next of `reader_`
  int64_t num_read_ = 0;
};

// Blocks of the text of documents, "" at the end: all of it, or about `sample_bytes` spread evenly.
// documents: outlive the function
std::function<std::string()> sample_files(const std::vector<Document>& documents,
                                          int64_t sample_bytes, uint64_t seed);

}  // namespace trireme::dataset
