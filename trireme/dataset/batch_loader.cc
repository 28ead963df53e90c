#include "trireme/dataset/batch_loader.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"

namespace trireme::dataset {

namespace {

std::string describe(const NamedTensor& tensor) {
  std::ostringstream out;
  out << "\"" << tensor.first << "\" of " << tensor.second.sizes() << " "
      << tensor.second.scalar_type();
  return out.str();
}

// Tensor i of each sample, in one. Copied by hand: at::stack() starts a pool of threads for each
// thread that calls it, and several read ahead.
at::Tensor stacked(const std::vector<NamedTensors>& samples, size_t i) {
  const NamedTensor& first = samples.front()[i];
  std::vector<int64_t> shape = first.second.sizes().vec();
  shape.insert(shape.begin(), std::ssize(samples));
  at::Tensor all = at::empty(shape, first.second.options());
  auto* to = static_cast<std::byte*>(all.mutable_data_ptr());
  for (const NamedTensors& sample : samples) {
    TRIREME_CHECK(sample.size() == samples.front().size(), "a sample has ", sample.size(),
                  " tensors and another of its batch ", samples.front().size(),
                  "; expected all samples alike");
    const bool fits = sample[i].first == first.first &&
                      sample[i].second.sizes() == first.second.sizes() &&
                      sample[i].second.scalar_type() == first.second.scalar_type();
    TRIREME_CHECK(fits, "a sample has ", describe(sample[i]), " and another of its batch ",
                  describe(first), "; expected all samples alike");
    const at::Tensor from = sample[i].second.contiguous();
    if (from.nbytes() > 0) std::memcpy(to, from.const_data_ptr(), from.nbytes());
    to += from.nbytes();
  }
  return all;
}

}  // namespace

BatchLoader::BatchLoader(const Source& source, BatchOptions options)
    : source_(source),
      options_(options),
      order_(source.size(), options.seed, options.shuffle, source.shard_sizes()) {
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
    batch.tensors.emplace_back(samples.front()[i].first, stacked(samples, i).narrow(0, 0, B));
  }
  return batch;
}

}  // namespace trireme::dataset
