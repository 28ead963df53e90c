// Turns labelled texts into token files with labels, for `trireme data prepare --format labelled`.
// Memory is bounded, however long the input. No file has its final name before everything is
// written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

struct PrepareLabelledOptions {
  // JSON lines: files, folders with *.jsonl, pipes; Parquet and Arrow files; URLs of these.
  std::vector<std::string> inputs{};
  std::shared_ptr<const FileStore> stores{};  // where URLs are; null: there may be none
  std::string tokenizer_model{};              // a tokenizer.json, or the model's folder
  std::string end_of_document{};              // the added token that ends a text; empty: see below
  std::string output{};                       // prefix of the files to write
  double validation_fraction = 0.0;           // of the rows
  uint64_t seed = 1;                          // chooses them
};

struct PrepareLabelledReport {
  std::vector<std::string> classes{};
  int64_t texts = 0;  // for training; the next one is for validation
  int64_t validation_texts = 0;
  int64_t tokens = 0;
  int64_t validation_tokens = 0;
  int64_t vocab_size = 0;
  int64_t longest_tokens = 0;  // the longest text
  int64_t num_bytes = 0;       // of the files as stored
};

// Writes what prepare() (prepare.h) does, a document for each row of read_labelled_text(), with the
// same names behind label_prefix() its labels, and the classes of the training rows. A text is
// begun by the tokenizer's cls_token, else [CLS] or <s>, and ended by its sep_token, else [SEP] or
// </s>. The same input, options and seed give the same bytes. Whether a row is for validation
// depends only on (seed, file name, number in it).
// `progress`, if set, is called with (bytes done, total bytes).
// Throws: ConfigError with file and line for a row that cannot be used, or in validation has a
//         class that training lacks, and for every option that the user can fix, or while another
//         process prepares the same output; Error when the disk fails
PrepareLabelledReport prepare_labelled(const PrepareLabelledOptions& options,
                                       const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace trireme::dataset
