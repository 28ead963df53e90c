// This rank's microbatches of a step. Step s holds the sampler's B samples from step_sample(s) on,
// B = global batch. The layout only decides which rank reads which of them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/sampler.h"

namespace trireme::dataset {

struct BatchOptions {
  int64_t global_batch = 0;  // sequences per step, over all ranks
  int64_t micro_batch = 0;   // sequences per forward
  int data_rank = 0;         // this rank among those that read different data
  int data_size = 1;
  // A resumed run continues at `first_sample` in step `first_step`, whatever batch it had before.
  int64_t first_step = 0;
  int64_t first_sample = 0;
  // The batch need not be divisible among the ranks: the last microbatches may be smaller or empty.
  bool uneven = false;
  bool documents = false;  // fill Batch::documents_BT
};

struct Batch {
  at::Tensor tokens_BT;   // [B, T] int64, CPU
  at::Tensor targets_BT;  // [B, T] int64, CPU: the tokens, shifted by one
  // [B, T] int64, CPU: equal for two tokens of a sequence in the same document. Only on request.
  at::Tensor documents_BT{};
  int64_t step = 0;
  int64_t first_sequence = 0;  // index of its first sequence in the step's global batch
};

// Thread safe. The sampler must outlive it.
class BatchLoader {
 public:
  // Throws: ConfigError unless micro_batch * data_size divides global_batch or `uneven` is set
  BatchLoader(const SequenceSampler& sampler, BatchOptions options);

  // Microbatches per rank and step: M = global_batch / (micro_batch * data_size), rounded up. The
  // same on every rank.
  int64_t num_microbatches() const { return num_microbatches_; }

  // The sampler's index of the step's first sequence over all ranks.
  int64_t step_sample(int64_t step) const;

  // The sampler's index of the first sequence of microbatch `index`. Ranks hold contiguous blocks:
  // step_sample(step) + (rank*M + index) * micro_batch.
  int64_t first_sample(int64_t step, int64_t index) const;

  // Shapes:  -> tokens_BT, targets_BT, documents_BT [micro_batch, T]; uneven: [0 to micro_batch, T]
  // Throws:  ConfigError for a token outside the vocabulary
  Batch microbatch(int64_t step, int64_t index) const;

 private:
  const SequenceSampler& sampler_;
  BatchOptions options_;
  int64_t num_microbatches_ = 0;
};

}  // namespace trireme::dataset
