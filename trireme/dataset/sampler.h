// Chooses the tokens of a training sample: a pure function of (seed, sample index). Every layout
// and every resume therefore sees the same data in the same order. Holds no position.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/dataset/indexed_file.h"

namespace trireme::dataset {

struct SamplerOptions {
  int64_t sequence_length = 0;  // T
  int64_t vocab_size = 0;       // larger tokens are an error; 0 checks nothing
  uint64_t seed = 0;
  bool shuffle = true;  // false for evaluation: samples in file order
};

// The token stream of all documents is cut into sequences of T + 1 tokens with stride T: the last
// token of one is the first of the next. Each epoch visits all of them in its own order.
// Thread safe. The file must outlive it.
class SequenceSampler {
 public:
  // Throws: ConfigError when the file has fewer than T + 1 tokens, or T < 1
  SequenceSampler(const IndexedFile& file, SamplerOptions options);

  int64_t sequence_length() const { return options_.sequence_length; }
  int64_t num_sequences() const { return num_sequences_; }  // per epoch

  // The number of sample n's sequence in the file. n counts over all ranks from the run's first
  // step on.
  int64_t sequence(int64_t n) const;

  // Copies the T + 1 tokens of sample n into `out`.
  // Throws: ConfigError for a token outside the vocabulary, with its position in the file
  void sample(int64_t n, std::span<int64_t> out) const;

  // Writes into `out`, for each of the first T tokens of sample n, the index in the file of the
  // document that it belongs to.
  void documents(int64_t n, std::span<int64_t> out) const;

 private:
  const IndexedFile& file_;
  SamplerOptions options_;
  int64_t num_sequences_ = 0;
};

}  // namespace trireme::dataset
