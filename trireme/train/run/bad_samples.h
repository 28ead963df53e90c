// Reads a step's microbatches and counts the samples that could not be read and were replaced
// (data.skip_bad_samples). Too many end the run, on all ranks with the same message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/batch_reader.h"

namespace trireme::train {

// Not thread safe.
class BadSamples {
 public:
  // most: data.skip_bad_samples; 0: none is replaced, and this class only reads
  explicit BadSamples(int64_t most) : most_(most) {}

  // This rank's microbatches [begin, end) of a step, from 0. Ranks that read the same samples count
  // once.
  // Comm:       none if `most` is 0; otherwise 8 bytes from each rank to all, and where samples
  //             are bad a line of text from each
  // Collective: every rank of `world`
  // Throws:     what the reader throws; if `most` is above 0 ConfigError on all ranks: when one
  //             cannot replace a sample, when more than `most` were bad so far, and when ranks
  //             disagree on samples that they all read
  std::vector<dataset::Batch> read(comm::Communicator& world, dataset::BatchReader& reader,
                                   int64_t step, int64_t begin, int64_t end);

  // So far, over all ranks. Empty if `most` is 0.
  std::optional<int64_t> count() const;
  // Bad samples of the run before a resume.
  void restore(int64_t count) { count_ = count; }
  int64_t saved_count() const { return count_; }

  // For the user, after the first bad sample: one line with its file. Empty otherwise.
  std::optional<std::string> take_finding();

 private:
  int64_t most_;
  int64_t count_ = 0;
  std::optional<std::string> finding_;
};

}  // namespace trireme::train
