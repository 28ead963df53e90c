// Samples of preference data: each is a pair of documents, the chosen answer and the rejected one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/dataset/token_source.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {

struct PairReport {
  int64_t pairs = 0;     // that are samples
  int64_t cut = 0;       // of these, with a document that is longer than a sequence
  int64_t left_out = 0;  // of which nothing of an answer is left after the cut
  double density = 0;    // of the samples' tokens, those that are no padding
};

// Documents 2i and 2i + 1 of the token file are pair i. Each takes a sequence of its own, as in
// PackedSource: n - 1 places, at most T, then padding, which has no target. Targets are the tokens
// of the answers, which the loss mask has as kLearntToken and kRejectedToken. A document that is
// too long is cut behind its first T + 1 tokens.
// Shapes: every tensor of a sample is [2, T]: the chosen one, then the rejected one
// Memory: 8 bytes per pair, if any is left out
class PairSource : public TokenSamples {
 public:
  // Throws: ConfigError when the file has no mask or an odd number of documents, when no pair is
  //         left, or T < 1
  PairSource(TokenStream stream, const TokenOptions& options);

  const PairReport& report() const { return report_; }
  std::string description() const override;
  int64_t size() const override { return report_.pairs; }

  // Throws: as TokenStream; ConfigError with the document when it has no answer
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  bool has_answer(int64_t document, int64_t num_tokens) const;

  TokenOptions options_;
  std::vector<int64_t> kept_;  // the pairs that are samples; empty: all
  PairReport report_;
};

}  // namespace trireme::dataset
