#include "trireme/dataset/batch_loader.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/stack.h>

#include "trireme/base/error.h"

namespace trireme::dataset {

BatchLoader::BatchLoader(const Source& source, BatchOptions options)
    : source_(source), options_(options), order_(source.size(), options.seed, options.shuffle) {
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

NamedTensors BatchLoader::sample(int64_t n) const {
  std::optional<RandomKey> augmentation;
  if (options_.shuffle) augmentation = order_.augmentation(n);
  return source_.get(order_.index(n), augmentation);
}

Batch BatchLoader::microbatch(int64_t step, int64_t index) const {
  const int64_t first = first_sample(step, index);
  const int64_t left = step_sample(step) + options_.global_batch - first;
  const int64_t B = std::clamp<int64_t>(left, 0, options_.micro_batch);
  std::vector<NamedTensors> samples;
  // An empty batch has the shapes of some sample.
  for (int64_t b = 0; b < std::max<int64_t>(B, 1); ++b) samples.push_back(sample(first + b));
  Batch batch{.step = step, .first_sample = first - step_sample(step)};
  for (size_t i = 0; i < samples.front().size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const NamedTensors& sample : samples) parts.push_back(sample[i].second);
    batch.tensors.emplace_back(samples.front()[i].first, at::stack(parts).narrow(0, 0, B));
  }
  return batch;
}

}  // namespace trireme::dataset
