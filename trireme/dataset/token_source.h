// The sequences of a token file, for language models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/dataset/indexed_file.h"
#include "trireme/dataset/source.h"

namespace trireme::dataset {

struct TokenOptions {
  int64_t sequence_length = 0;  // T
  int64_t vocab_size = 0;       // larger tokens are an error; 0 checks nothing
  bool documents = false;       // samples say which document each token belongs to
};

// The token stream of all documents is cut into sequences of T + 1 tokens with stride T: the last
// token of one is the first of the next. A sample has `tokens` and `targets`, the tokens shifted by
// one, and on request `documents`, equal for two tokens in the same document; each [T] int64.
class TokenSource : public Source {
 public:
  // Throws: ConfigError when the file has fewer than T + 1 tokens, or T < 1
  TokenSource(std::shared_ptr<const IndexedFile> file, TokenOptions options);
  // Throws: ConfigError also when a file is missing or damaged
  TokenSource(const std::string& prefix, TokenOptions options)
      : TokenSource(std::make_shared<const IndexedFile>(prefix), options) {}

  const IndexedFile& file() const { return *file_; }
  int64_t sequence_length() const { return options_.sequence_length; }
  int64_t size() const override { return size_; }

  // Throws: ConfigError for a token outside the vocabulary, with its position in the file
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

  // Copies the T + 1 tokens of sequence `index` into `out`.
  // Throws: as get()
  void read_tokens(int64_t index, std::span<int64_t> out) const;

  // Writes into `out`, for each of the first T tokens of sequence `index`, the index in the file of
  // the document that it belongs to.
  void read_documents(int64_t index, std::span<int64_t> out) const;

 private:
  std::shared_ptr<const IndexedFile> file_;
  TokenOptions options_;
  int64_t size_ = 0;
};

}  // namespace trireme::dataset
