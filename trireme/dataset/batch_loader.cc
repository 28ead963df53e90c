#include "trireme/dataset/batch_loader.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>
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

// Room for B samples like this one.
NamedTensors make_room(const NamedTensors& sample, int64_t B) {
  NamedTensors all;
  for (const auto& [name, tensor] : sample) {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin(), B);
    all.emplace_back(name, at::empty(shape, tensor.options()));
  }
  return all;
}

// Copied by hand: at::stack() starts a pool of threads for each thread that calls it, and several
// read ahead. One after the other, so that a sample's memory serves the next one.
void copy_sample(const NamedTensors& sample, const NamedTensors& first, int64_t b,
                 NamedTensors& all) {
  TRIREME_CHECK(sample.size() == first.size(), "a sample has ", sample.size(),
                " tensors and another of its batch ", first.size(), "; expected all samples alike");
  for (size_t i = 0; i < sample.size(); ++i) {
    const bool fits = sample[i].first == first[i].first &&
                      sample[i].second.sizes() == first[i].second.sizes() &&
                      sample[i].second.scalar_type() == first[i].second.scalar_type();
    TRIREME_CHECK(fits, "a sample has ", describe(sample[i]), " and another of its batch ",
                  describe(first[i]), "; expected all samples alike");
    const at::Tensor from = sample[i].second.contiguous();
    if (from.nbytes() == 0) continue;
    auto* const to = static_cast<std::byte*>(all[i].second.mutable_data_ptr());
    std::memcpy(to + b * static_cast<int64_t>(from.nbytes()), from.const_data_ptr(), from.nbytes());
  }
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
  TRIREME_CHECK(options.last_batch != LastBatch::kDrop || source.size() >= options.global_batch,
                "global_batch is ", options.global_batch, " and the data has ", source.size(),
                " samples; expected no more than these, because an epoch's last batch is dropped");
  num_microbatches_ = (options.global_batch + unit - 1) / unit;
}

int64_t BatchLoader::step_sample(int64_t step) const {
  TRIREME_ASSERT(step >= options_.first_step, "step ", step, " lies before ", options_.first_step);
  const int64_t B = options_.global_batch, size = order_.size();
  const int64_t steps = step - options_.first_step;
  if (options_.last_batch == LastBatch::kFill) return options_.first_sample + steps * B;
  // A run that resumes within an epoch first finishes that.
  const auto batches_in = [&](int64_t num_samples) {
    return options_.last_batch == LastBatch::kKeep ? (num_samples + B - 1) / B : num_samples / B;
  };
  const int64_t epoch = options_.first_sample / size;
  const int64_t begun = batches_in(size - options_.first_sample % size);
  if (steps < begun) return options_.first_sample + steps * B;
  const int64_t whole = steps - begun, per_epoch = batches_in(size);
  return (epoch + 1 + whole / per_epoch) * size + whole % per_epoch * B;
}

int64_t BatchLoader::step_size(int64_t step) const {
  if (options_.last_batch != LastBatch::kKeep) return options_.global_batch;
  return std::min(options_.global_batch, order_.size() - step_sample(step) % order_.size());
}

int64_t BatchLoader::first_sample(int64_t step, int64_t index) const {
  TRIREME_ASSERT(index >= 0 && index < num_microbatches_, "microbatch ", index, " of ",
                 num_microbatches_);
  return step_sample(step) +
         (options_.data_rank * num_microbatches_ + index) * options_.micro_batch;
}

// Which samples are bad depends on the data alone, so every rank replaces them alike.
NamedTensors BatchLoader::sample(int64_t n, std::vector<std::string>& bad) const {
  std::optional<RandomKey> augmentation;
  if (options_.shuffle) augmentation = order_.augmentation(n);
  const int64_t index = order_.index(n);
  for (int64_t replaced = 0;; ++replaced) {
    try {
      return source_.get((index + replaced) % order_.size(), augmentation);
    } catch (const ConfigError& error) {
      if (options_.most_replaced == 0) throw;
      TRIREME_CHECK(replaced < options_.most_replaced, replaced + 1,
                    " samples in a row cannot be read; the last: ", error.what());
      bad.emplace_back(error.what());
    }
  }
}

Batch BatchLoader::microbatch(int64_t step, int64_t index) const {
  const int64_t first = first_sample(step, index);
  const int64_t left = step_sample(step) + step_size(step) - first;
  const int64_t B = std::clamp<int64_t>(left, 0, options_.micro_batch);
  std::vector<std::string> bad;
  // An empty batch has the shapes of a sample: one that another rank reads, and counts if it is
  // bad.
  const NamedTensors first_read = sample(B == 0 ? step_sample(step) : first, bad);
  if (B == 0) bad.clear();
  NamedTensors all = make_room(first_read, B);
  for (int64_t b = 0; b < B; ++b) {
    copy_sample(b == 0 ? first_read : sample(first + b, bad), first_read, b, all);
  }
  return {.tensors = std::move(all),
          .step = step,
          .first_sample = first - step_sample(step),
          .step_size = step_size(step),
          .bad_samples = std::move(bad)};
}

}  // namespace trireme::dataset
