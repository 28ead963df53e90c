#include "trireme/dataset/batch_loader.h"

#include <algorithm>
#include <span>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"

namespace trireme::dataset {

BatchLoader::BatchLoader(const SequenceSampler& sampler, BatchOptions options)
    : sampler_(sampler), options_(options) {
  TRIREME_CHECK(options.global_batch >= 1 && options.micro_batch >= 1, "global_batch is ",
                options.global_batch, " and micro_batch ", options.micro_batch,
                ", expected at least 1 each");
  TRIREME_CHECK(
      options.data_size >= 1 && options.data_rank >= 0 && options.data_rank < options.data_size,
      "data rank ", options.data_rank, " of ", options.data_size,
      ", expected a rank below the size");
  const int64_t unit = options.micro_batch * options.data_size;
  const int64_t below = options.global_batch / unit * unit;
  TRIREME_CHECK(options.uneven || below == options.global_batch, "global_batch is ",
                options.global_batch,
                ", expected a multiple of micro_batch * data ranks = ", options.micro_batch, " * ",
                options.data_size, " = ", unit, "; set it to ",
                below > 0 ? concat(below, " or ", below + unit) : concat(unit));
  num_microbatches_ = (options.global_batch + unit - 1) / unit;
}

int64_t BatchLoader::step_sample(int64_t step) const {
  TRIREME_ASSERT(step >= options_.first_step, "step ", step, " lies before ", options_.first_step);
  return options_.first_sample + (step - options_.first_step) * options_.global_batch;
}

int64_t BatchLoader::first_sample(int64_t step, int64_t index) const {
  TRIREME_ASSERT(index >= 0 && index < num_microbatches_, "microbatch ", index, " of ",
                 num_microbatches_);
  return step_sample(step) +
         (options_.data_rank * num_microbatches_ + index) * options_.micro_batch;
}

Batch BatchLoader::microbatch(int64_t step, int64_t index) const {
  const int64_t T = sampler_.sequence_length();
  const int64_t first = first_sample(step, index);
  const int64_t left = step_sample(step) + options_.global_batch - first;
  const int64_t B = std::clamp<int64_t>(left, 0, options_.micro_batch);
  Batch batch{.tokens_BT = at::empty({B, T}, at::kLong),
              .targets_BT = at::empty({B, T}, at::kLong),
              .step = step,
              .first_sequence = first - step_sample(step)};
  if (options_.documents) batch.documents_BT = at::empty({B, T}, at::kLong);
  auto* tokens = batch.tokens_BT.mutable_data_ptr<int64_t>();
  auto* targets = batch.targets_BT.mutable_data_ptr<int64_t>();
  std::vector<int64_t> sequence(T + 1);
  for (int64_t b = 0; b < B; ++b) {
    sampler_.sample(first + b, sequence);
    std::copy_n(sequence.begin(), T, tokens + b * T);
    std::copy_n(sequence.begin() + 1, T, targets + b * T);
    if (!options_.documents) continue;
    auto* documents = batch.documents_BT.mutable_data_ptr<int64_t>();
    sampler_.documents(first + b, {documents + b * T, static_cast<size_t>(T)});
  }
  return batch;
}

}  // namespace trireme::dataset
