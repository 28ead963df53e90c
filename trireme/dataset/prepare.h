// From text to token files: what `trireme data prepare` does. Memory stays bounded, however large
// the input; nothing has its final name before everything is written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::dataset {

struct PrepareOptions {
  std::vector<std::string> inputs = {};    // files and folders; a file is a document
  std::vector<std::string> globs = {};     // which files of a folder, e.g. "*.py"; none = all
  std::vector<std::string> excludes = {};  // names of files and folders to leave out, e.g. "test*"

  std::string tokenizer = "bytes";   // bytes | bpe
  std::string tokenizer_model = {};  // a SentencePiece model to use instead of training one (bpe)
  int64_t vocab_size = 0;            // 0: 257 for bytes, 8192 for a bpe tokenizer trained here
  int64_t tokenizer_sample_bytes = int64_t{16}
                                   << 20;  // how much text a bpe tokenizer is trained on

  std::string output = {};           // prefix of the files written
  double validation_fraction = 0.0;  // of the documents; of the bytes when there is one document
  uint64_t seed = 1;                 // chooses validation documents and the tokenizer's sample
  bool append_end_of_document = true;
};

struct PrepareReport {
  std::string tokenizer;
  int64_t vocab_size = 0;
  int64_t documents = 0;  // for training; the next one likewise for validation
  int64_t validation_documents = 0;
  int64_t tokens = 0;
  int64_t validation_tokens = 0;
  int64_t bytes = 0;  // of all text
  double bytes_per_token = 0.0;
};

// Writes OUTPUT.bin/.idx, with a validation fraction OUTPUT.validation.bin/.idx, and
// OUTPUT.tokenizer.json (and .model). Same input, options and seed: same bytes. Which documents are
// for validation depends on (seed, name) alone, so adding files moves none of the others.
// `progress`, when given, is called with (bytes done, bytes in all) as text is encoded.
// Throws: ConfigError for every option or input the user can fix; Error when the disk fails
PrepareReport prepare(const PrepareOptions& options,
                      const std::function<void(int64_t, int64_t)>& progress = {});

// The prefix of the validation files that belong to `prefix`.
std::string validation_prefix(const std::string& prefix);

}  // namespace trireme::dataset
