// This rank's microbatches of a step. Step s holds the B samples of the sampler from step_sample(s)
// on, B = global batch; a layout only decides which rank reads which of them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/sampler.h"

namespace trireme::dataset {

struct BatchOptions {
  int64_t global_batch = 0;  // sequences a step, over all ranks
  int64_t micro_batch = 0;   // sequences a forward
  int data_rank = 0;         // this rank among those that read different data
  int data_size = 1;
  // A resumed run goes on at `first_sample` in step `first_step`, whatever batch it had before.
  int64_t first_step = 0;
  int64_t first_sample = 0;
  // The batch need not divide among the ranks: the last microbatches hold fewer sequences or none.
  bool uneven = false;
  bool documents = false;  // batches say which document each token is of
};

struct Batch {
  at::Tensor tokens_BT;   // [B, T] int64, CPU
  at::Tensor targets_BT;  // [B, T] int64, CPU: tokens one to the right
  // [B, T] int64, CPU: equal where two tokens of a sequence are of one document; asked for alone
  at::Tensor documents_BT{};
  int64_t step = 0;
  int64_t first_sequence = 0;  // where its first one is in the step's global batch
};

// Thread safe. The sampler must outlive it.
class BatchLoader {
 public:
  // Throws: ConfigError unless micro_batch * data_size divides global_batch, or it may be uneven
  BatchLoader(const SequenceSampler& sampler, BatchOptions options);

  // Microbatches of one rank in one step: M = global_batch / (micro_batch * data_size), rounded
  // up; the same on every rank.
  int64_t num_microbatches() const { return num_microbatches_; }

  // The sampler's index of the step's first sequence over all ranks.
  int64_t step_sample(int64_t step) const;

  // The sampler's index of the first sequence of microbatch `index`: ranks hold contiguous blocks,
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
