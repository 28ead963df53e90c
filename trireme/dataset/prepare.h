// Turns text into token files, for `trireme data prepare`. Memory is bounded, however large the
// input. No file has its final name before everything is written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {

enum class DocumentForm {
  kFiles,      // each file is a document
  kJsonLines,  // each row of files of JSON lines is one
  kParquet,    // each row of Parquet files
  kArrow       // each row of Arrow files, or of streams in files
};

// What the draw of a validation document depends on, beside the seed.
enum class SplitBy {
  kName,  // that of its file
  kText   // its text, so that the same text is always on one side; that of rows
};

struct PrepareOptions {
  DocumentForm form = DocumentForm::kFiles;
  std::vector<std::string> inputs = {};       // files, folders, pipes, URLs
  std::shared_ptr<const FileStore> stores{};  // where URLs are; null: there may be none
  std::vector<std::string> globs = {};        // which files of a folder, such as "*.py"; none = all
  std::vector<std::string> excludes = {};     // names of files and folders to skip, such as "test*"

  TokenizerKind tokenizer = TokenizerKind::kBytes;
  std::string tokenizer_model = {};  // json: the tokenizer.json; bpe: a SentencePiece model to use
                                     // instead of training one
  std::string end_of_document = {};  // json: the added token that ends a document; empty: one of
                                     // <|endoftext|>, <|end_of_text|> and </s>
  int64_t vocab_size = 0;  // 0: 257 for bytes, 8192 for a bpe tokenizer trained here, a file's
  int64_t tokenizer_sample_bytes = int64_t{16}
                                   << 20;  // how much text a bpe tokenizer is trained on

  std::string output = {};           // prefix of the files to write
  double validation_fraction = 0.0;  // of the documents, or of the bytes if there is one document
  uint64_t seed = 1;                 // chooses validation documents and the tokenizer's sample
  SplitBy split = SplitBy::kName;    // kFiles
  // Leaves out documents whose text came before: 64 bytes of memory each at most.
  bool dedupe = false;
  bool append_end_of_document = true;
  // kFiles: takes files that look like JSON lines, tables or compressed ones as text.
  bool as_text = false;
  std::string text_key = "text";  // of rows: the member or column that has the text, or a path
                                  // (TextKey)
  bool skip_bad_rows = false;     // leaves rows out that cannot be used
  int num_threads = 1;            // that encode
  // Of text, between two places from which an interrupted preparation goes on.
  int64_t journal_bytes = int64_t{64} << 20;
};

struct PrepareReport {
  TokenizerKind tokenizer = TokenizerKind::kBytes;
  int64_t vocab_size = 0;
  int64_t documents = 0;  // for training; the next one is for validation
  int64_t validation_documents = 0;
  int64_t tokens = 0;
  int64_t validation_tokens = 0;
  int64_t bytes = 0;            // of all text
  int64_t bytes_resumed = 0;    // of these, what an interrupted preparation had encoded
  int64_t bytes_read = 0;       // of the files, as stored
  int64_t duplicates = 0;       // documents that were left out
  int64_t bad_rows = 0;         // that were left out
  int64_t empty_rows = 0;       // the same, with a text of no bytes
  std::string first_bad_row{};  // the file, the line, and why
  double bytes_per_token = 0.0;
  // Of these tokens, those of text that the tokenizer's vocabulary lacks.
  int64_t unknown_tokens = 0;
};

// Writes OUTPUT.bin/.idx, with a validation fraction also OUTPUT.validation.bin/.idx, and
// OUTPUT.tokenizer.json (and .model). The same input, options and seed give the same bytes, with
// any number of threads, and when an earlier call with them was interrupted: the next one goes on
// from what it had written (preparation.h). Whether a file is for validation depends only on
// (seed, name), whether a row is on (seed, text), so adding others moves none; either side has at
// least one.
// `progress`, if set, is called with (bytes done, total bytes), of the files as stored, as text is
// encoded.
// Throws: ConfigError for every option or input that the user can fix, with file and line for a
//         row, and while another process prepares the same output; Error when the disk fails
PrepareReport prepare(const PrepareOptions& options,
                      const std::function<void(int64_t, int64_t)>& progress = {});

// The prefix of the validation files that belong to `prefix`.
std::string validation_prefix(const std::string& prefix);

}  // namespace trireme::dataset
