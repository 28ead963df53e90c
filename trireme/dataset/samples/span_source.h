// Samples for span corruption: spans of the text are taken out, and the model is trained to write
// them from what is left.
// Source: Raffel et al. 2020, arXiv:1910.10683, section 3.1.4; the lengths: T5's own code
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {

// How many tokens a sample has.
struct SpanLengths {
  int64_t text = 0;     // R: tokens of the text
  int64_t noise = 0;    // of these, those that are taken out: round(share * R)
  int64_t spans = 0;    // in so many spans: round(noise / span_length)
  int64_t inputs = 0;   // T: the rest, a sentinel for each span, and the end
  int64_t targets = 0;  // U: each span behind its sentinel, and the end

  bool operator==(const SpanLengths&) const = default;
};

// The longest text whose inputs are at most `inputs` tokens; they are then exactly so many. Rounds
// halves to even.
// share: of the tokens that are taken out; span_length: their mean number in a span, at least 1
// Throws: ConfigError when `inputs` is below 3, or no text has inputs of that length
SpanLengths span_lengths(int64_t inputs, double share, double span_length);

struct SpanOptions {
  SpanLengths lengths{};
  int64_t sentinel = 0;  // of the first span; the next ones count down
  int64_t end = 0;       // ends inputs and targets
  int64_t start = 0;     // what the decoder reads first
};

// Samples have `tokens` [T], the inputs of the encoder, `targets` [U], and `decoder_tokens` [U]:
// the start and all targets but the last; int64. Each text is one of `samples`, cut into spans of
// what stays and of what is taken out, in turn, beginning with the former: both kinds at random
// among all ways to cut them into as many spans. Of the n - 1 places where n tokens could be cut,
// place i of those left is cut if its random number, below 2^32, times their number is below 2^32
// times the number of cuts left: word 0 of random_bits(key, i) for what is taken out, word 1 for
// what stays. The key is the sample's augmentation, so that every epoch takes out others; in
// evaluation random_key(0, "data/spans/<index>").
class SpanSamples : public TokenSamples {
 public:
  // samples: of lengths.text tokens
  // Throws: InternalError when the options do not fit together
  SpanSamples(std::shared_ptr<const TokenSamples> samples, const SpanOptions& options);

  std::string description() const override;
  int64_t size() const override { return samples_->size(); }
  // Throws: as `samples` do
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

 private:
  std::shared_ptr<const TokenSamples> samples_;
  SpanOptions options_;
};

}  // namespace trireme::dataset
