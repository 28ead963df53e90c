// Turns text into token files, for `trireme data prepare`. Memory is bounded, however large the
// input. No file has its final name before everything is written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {

struct PrepareOptions {
  std::vector<std::string> inputs = {};    // files, folders, pipes; each file is a document
  std::vector<std::string> globs = {};     // which files of a folder, such as "*.py"; none = all
  std::vector<std::string> excludes = {};  // names of files and folders to skip, such as "test*"

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
  bool append_end_of_document = true;
  bool as_text = false;  // takes files that look like JSON lines, tables or compressed ones as text
};

struct PrepareReport {
  TokenizerKind tokenizer = TokenizerKind::kBytes;
  int64_t vocab_size = 0;
  int64_t documents = 0;  // for training; the next one is for validation
  int64_t validation_documents = 0;
  int64_t tokens = 0;
  int64_t validation_tokens = 0;
  int64_t bytes = 0;  // of all text
  double bytes_per_token = 0.0;
  // Of these tokens, those of text that the tokenizer's vocabulary lacks.
  int64_t unknown_tokens = 0;
};

// Writes OUTPUT.bin/.idx, with a validation fraction also OUTPUT.validation.bin/.idx, and
// OUTPUT.tokenizer.json (and .model). The same input, options and seed give the same bytes. Whether
// a document is for validation depends only on (seed, name), so adding files moves no others.
// `progress`, if set, is called with (bytes done, total bytes) as text is encoded.
// Throws: ConfigError for every option or input that the user can fix, and while another process
//         prepares the same output; Error when the disk fails
PrepareReport prepare(const PrepareOptions& options,
                      const std::function<void(int64_t, int64_t)>& progress = {});

// The prefix of the validation files that belong to `prefix`.
std::string validation_prefix(const std::string& prefix);

}  // namespace trireme::dataset
