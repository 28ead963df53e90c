// Rows as documents: their texts, and which of them are for validation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/dataset/text/documents.h"
#include "trireme/dataset/text/text_rows.h"
#include "trireme/dataset/text/text_source.h"
#include "trireme/dataset/text/text_split.h"

namespace trireme::dataset {

struct RowTextOptions {
  TextRowForm form;
  TextSplit split{};
  bool skip_bad_rows = false;
  bool dedupe = false;  // texts have a digest; sample_rows() takes each once
};

// The split of rows. Reads them only until it has found a text on each side.
// Throws: ConfigError when all rows have one text, and for a row as RowTexts does
TextSplit choose_text_split(const std::vector<Document>& files, const RowTextOptions& options,
                            double fraction, uint64_t seed);

// The texts of rows, in the order of the files. A batch throws ConfigError with file and line for a
// row that cannot be used, unless these are skipped.
class RowTexts : public TextSource {
 public:
  // files, options: outlive this
  RowTexts(const std::vector<Document>& files, const RowTextOptions& options);
  std::function<TextBatch()> next() override;
  int64_t num_bytes() const override { return num_bytes_; }
  int64_t num_read() const override { return rows_->num_read(); }

 private:
  const RowTextOptions& options_;
  std::unique_ptr<TextRows> rows_;
  int64_t num_bytes_ = 0;
};

// Text for training, "" at the end: all of it, or blocks with about `sample_bytes` in all, drawn by
// (seed, row, block).
// files, options: outlive the function
std::function<std::string()> sample_rows(const std::vector<Document>& files,
                                         const RowTextOptions& options, int64_t sample_bytes);

}  // namespace trireme::dataset
