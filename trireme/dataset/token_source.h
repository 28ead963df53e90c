// Samples that ignore where documents end: the stream of all tokens, cut into pieces of one length.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {

struct TokenOptions {
  int64_t sequence_length = 0;  // T
  int64_t vocab_size = 0;       // larger tokens are an error; 0 checks nothing
  bool documents = false;       // samples say which document each token belongs to
  // A token's target is the one so many places further on: 1, or 0 for itself.
  int64_t ahead = 1;
};

// The stream is cut into sequences of T + 1 tokens with stride T: the last token of one is the
// first of the next. So the first token of a document is the target of the last one before it,
// unless a loss mask leaves it out.
class TokenSource : public TokenSamples {
 public:
  // Throws: ConfigError when the file has fewer than T + 1 tokens, or T < 1
  TokenSource(TokenStream stream, const TokenOptions& options);
  // Without a loss mask.
  TokenSource(std::shared_ptr<const IndexedFile> file, const TokenOptions& options)
      : TokenSource(TokenStream(std::move(file), options.vocab_size), options) {}
  // Throws: ConfigError also when a file is missing or damaged
  TokenSource(const std::string& prefix, const TokenOptions& options)
      : TokenSource(TokenStream(prefix, options.vocab_size), options) {}

  int64_t sequence_length() const { return options_.sequence_length; }
  int64_t size() const override { return size_; }

  // Throws: as TokenStream
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

  // Copies the T + 1 tokens of sequence `index` into `out`.
  // Throws: as get()
  void read_tokens(int64_t index, std::span<int64_t> out) const;

  // Writes into `out`, for each of the first T tokens of sequence `index`, the index in the file of
  // the document that it belongs to.
  void read_documents(int64_t index, std::span<int64_t> out) const;

 private:
  TokenOptions options_;
  int64_t size_ = 0;
};

}  // namespace trireme::dataset
