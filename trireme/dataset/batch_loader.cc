#include "trireme/dataset/batch_loader.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <numeric>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/dataset/blend/blend.h"

namespace trireme::dataset {
namespace {

// Without the stream of concat(): its locale takes longer than reading a small sample.
RandomKey numbered_key(uint64_t seed, const std::string& name, int64_t number) {
  return random_key(seed, name + std::to_string(number));
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

}  // namespace

// The shards' order in each epoch. That of the last epoch asked for is kept, because making it
// costs time for every shard.
class SampleOrder::Shards {
 public:
  Shards(std::vector<int64_t> sizes, uint64_t seed, int64_t window)
      : sizes_(std::move(sizes)), seed_(seed), window_(window), begins_(sizes_.size()) {
    std::exclusive_scan(sizes_.begin(), sizes_.end(), begins_.begin(), int64_t{0});
  }

  int64_t index(int64_t epoch, int64_t position, int64_t size) const {
    const int64_t window = position / window_;
    const int64_t begin = window * window_;
    const RandomKey key =
        numbered_key(seed_, "data/epoch/" + std::to_string(epoch) + "/window/", window);
    const auto within = static_cast<int64_t>(
        random_permutation(key, static_cast<uint64_t>(position - begin),
                           static_cast<uint64_t>(std::min(window_, size - begin))));
    const std::shared_ptr<const Epoch> order = epoch_order(epoch);
    const int64_t at = begin + within;
    const auto place =
        static_cast<size_t>(std::ranges::upper_bound(order->ends, at) - order->ends.begin());
    const size_t shard = order->shards[place];
    return begins_[shard] + at - (order->ends[place] - sizes_[shard]);
  }

 private:
  struct Epoch {
    int64_t number = 0;
    std::vector<size_t> shards;  // in their order
    std::vector<int64_t> ends;   // of each, in samples of the epoch
  };

  std::shared_ptr<const Epoch> epoch_order(int64_t number) const {
    const std::lock_guard lock(mutex_);
    if (last_ && last_->number == number) return last_;
    const RandomKey key = random_key(seed_, concat("data/epoch/", number, "/shards"));
    auto made = std::make_shared<Epoch>();
    made->number = number;
    int64_t end = 0;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      made->shards.push_back(random_permutation(key, i, sizes_.size()));
      end += sizes_[made->shards.back()];
      made->ends.push_back(end);
    }
    return last_ = std::move(made);
  }

  std::vector<int64_t> sizes_;
  uint64_t seed_;
  int64_t window_;
  std::vector<int64_t> begins_;  // of each shard, by index
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Epoch> last_;
};

namespace {

// The index of sample n of one source of `size` samples.
int64_t shuffled(int64_t n, int64_t size, uint64_t seed) {
  const RandomKey key = numbered_key(seed, "data/epoch/", n / size);
  return static_cast<int64_t>(
      random_permutation(key, static_cast<uint64_t>(n % size), static_cast<uint64_t>(size)));
}

}  // namespace

SampleOrder::SampleOrder(int64_t size, uint64_t seed, bool shuffle, std::vector<int64_t> shards,
                         int64_t window)
    : size_(size), seed_(seed), shuffle_(shuffle) {
  TRIREME_ASSERT(size >= 1, "an order of ", size, " samples");
  if (shards.empty()) return;
  const int64_t sum = std::reduce(shards.begin(), shards.end());
  TRIREME_ASSERT(sum == size && window >= 1 && std::ranges::min(shards) >= 0, "shards of ", sum,
                 " samples of ", size, ", window ", window);
  shards_ = std::make_shared<const Shards>(std::move(shards), seed, window);
}

SampleOrder::SampleOrder(const Source& source, uint64_t seed, bool shuffle)
    : SampleOrder(source.size(), seed, shuffle, source.shard_sizes()) {
  blend_ = source.blend();
}

int64_t SampleOrder::index(int64_t n) const {
  TRIREME_ASSERT(n >= 0, "sample ", n);
  const int64_t epoch = n / size_;
  const int64_t position = n % size_;
  if (!shuffle_) return position;
  if (shards_) return shards_->index(epoch, position, size_);
  if (blend_ == nullptr) return shuffled(n, size_, seed_);
  const auto [part, number] = blend_->place(n);
  return blend_->begin(part) + shuffled(number, blend_->parts()[part].size, seed_);
}

RandomKey SampleOrder::augmentation(int64_t n) const {
  return numbered_key(seed_, "data/augmentation/", n);
}

namespace {

// The sum of floor((a i + b) / m) for i from 0 to n - 1: the points with whole coordinates, from 1
// up, below a line. What remains of its slope below 1 is counted along the other axis.
int64_t floor_sum(int64_t n, int64_t a, int64_t b, int64_t m) {
  if (n == 0) return 0;
  const int64_t whole = n * (n - 1) / 2 * (a / m) + n * (b / m);
  const int64_t slope = a % m, offset = b % m;
  const int64_t height = (slope * n + offset) / m;
  if (height == 0) return whole;
  return whole + floor_sum(height, m, (slope * n + offset) % m, slope);
}

}  // namespace

int64_t BatchSizes::of(int64_t step) const {
  if (first == 0 || step >= ramp_steps) return last;
  return first * (1 + (last / first - 1) * step / ramp_steps);
}

int64_t BatchSizes::before(int64_t step) const {
  if (first == 0) return step * last;
  const int64_t in_ramp = std::min(step, ramp_steps);
  const int64_t added = in_ramp == 0 ? 0 : floor_sum(in_ramp, last / first - 1, 0, ramp_steps);
  return first * (in_ramp + added) + (step - in_ramp) * last;
}

namespace {

// Samples of one forward, over all ranks.
int64_t forward_samples(const BatchOptions& options) {
  if (options.shares.empty()) return options.micro_batch * options.data_size;
  const auto sum = [](const Shares& shares) {
    return std::reduce(shares.micro_batches.begin(), shares.micro_batches.end());
  };
  const int64_t samples = sum(options.shares.front());
  int64_t earliest = 0;
  for (const Shares& shares : options.shares) {
    const bool is_first = &shares == &options.shares.front();
    TRIREME_ASSERT(std::ssize(shares.micro_batches) == options.data_size && samples >= 1 &&
                       sum(shares) == samples && std::ranges::min(shares.micro_batches) >= 0 &&
                       (is_first ? shares.step == 0 : shares.step >= earliest),
                   "shares of ", shares.micro_batches.size(), " ranks from step ", shares.step);
    earliest = shares.step + 1;
  }
  return samples;
}

}  // namespace

BatchLoader::BatchLoader(const Source& source, BatchOptions options)
    : source_(source),
      options_(std::move(options)),
      order_(source, options_.seed, options_.shuffle),
      sizes_{options_.global_batch, options_.first_batch, options_.ramp_steps} {
  const bool reads = options_.micro_batch >= 1 || !options_.shares.empty();
  TRIREME_CHECK(options_.global_batch >= 1 && reads, "global_batch is ", options_.global_batch,
                " and micro_batch ", options_.micro_batch, ", expected at least 1 each");
  TRIREME_CHECK(
      options_.data_size >= 1 && options_.data_rank >= 0 && options_.data_rank < options_.data_size,
      "data rank ", options_.data_rank, " of ", options_.data_size,
      ", expected a rank below the size");
  const int64_t unit = forward_samples(options_);
  const int64_t below = options_.global_batch / unit * unit;
  TRIREME_CHECK(
      options_.uneven || below == options_.global_batch, "global_batch is ", options_.global_batch,
      ", expected a multiple of ",
      options_.shares.empty() ? concat("micro_batch * data ranks = ", options_.micro_batch, " * ",
                                       options_.data_size, " = ")
                              : "the sum of the ranks' shares, ",
      unit, "; set it to ", below > 0 ? concat(below, " or ", below + unit) : concat(unit));
  TRIREME_CHECK(options_.last_batch != LastBatch::kDrop || source.size() >= options_.global_batch,
                "global_batch is ", options_.global_batch, " and the data has ", source.size(),
                " samples; expected no more than these, because an epoch's last batch is dropped");
  TRIREME_ASSERT(options_.last_batch == LastBatch::kFill || source.blend() == nullptr,
                 "a blend has no last batch of an epoch");
  unit_ = unit;
  TRIREME_ASSERT(
      options_.first_batch == 0 ||
          (options_.first_batch % unit == 0 && options_.global_batch % options_.first_batch == 0 &&
           options_.ramp_steps > 0 && options_.last_batch == LastBatch::kFill),
      "a ramp from ", options_.first_batch, " to ", options_.global_batch);
}

BatchLoader BatchLoader::with(std::vector<Shares> shares) const {
  BatchOptions options = options_;
  options.shares = std::move(shares);
  BatchLoader other(source_, std::move(options));
  TRIREME_ASSERT(other.unit_ == unit_, "shares of ", other.unit_, " samples instead of ", unit_);
  return other;
}

int64_t BatchLoader::step_sample(int64_t step) const {
  TRIREME_ASSERT(step >= options_.first_step, "step ", step, " lies before ", options_.first_step);
  const int64_t B = options_.global_batch, size = order_.size();
  const int64_t steps = step - options_.first_step;
  if (options_.last_batch == LastBatch::kFill) {
    return options_.first_sample + sizes_.before(step) - sizes_.before(options_.first_step);
  }
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

std::optional<int64_t> BatchLoader::first_step_from(int64_t sample, int64_t most) const {
  const auto steps = std::views::iota(options_.first_step, std::max(most + 1, options_.first_step));
  const auto found = std::ranges::lower_bound(steps, sample, {},
                                              [this](int64_t step) { return step_sample(step); });
  if (found == steps.end()) return std::nullopt;
  return *found;
}

int64_t BatchLoader::step_size(int64_t step) const {
  if (options_.last_batch != LastBatch::kKeep) return sizes_.of(step);
  return std::min(options_.global_batch, order_.size() - step_sample(step) % order_.size());
}

BatchLoader::Share BatchLoader::share(int64_t step) const {
  const int rank = options_.data_rank;
  if (options_.shares.empty()) return {rank * options_.micro_batch, options_.micro_batch};
  const auto after = std::ranges::upper_bound(options_.shares, step, {}, &Shares::step);
  const std::vector<int64_t>& sizes = std::prev(after)->micro_batches;
  return {std::reduce(sizes.begin(), sizes.begin() + rank), sizes[static_cast<size_t>(rank)]};
}

int64_t BatchLoader::first_sample(int64_t step, int64_t index) const {
  const int64_t M = num_microbatches(step);
  TRIREME_ASSERT(index >= 0 && index < M, "microbatch ", index, " of ", M);
  const Share own = share(step);
  return step_sample(step) +
         (options_.in_turn ? index * unit_ + own.before : M * own.before + index * own.size);
}

// Which samples are bad depends on the data alone, so every rank replaces them alike.
void BatchLoader::read_sample(
    int64_t n, std::vector<std::string>& bad,
    const std::function<void(int64_t, std::optional<RandomKey>)>& read) const {
  std::optional<RandomKey> augmentation;
  if (options_.shuffle) augmentation = order_.augmentation(n);
  const int64_t index = order_.index(n);
  for (int64_t replaced = 0;; ++replaced) {
    try {
      return read((index + replaced) % order_.size(), augmentation);
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
  const int64_t B = std::clamp<int64_t>(left, 0, share(step).size);
  std::vector<std::string> bad;
  // An empty batch has the shapes of a sample: one that another rank reads, and counts if it is
  // bad.
  NamedTensors sample;
  read_sample(B == 0 ? step_sample(step) : first, bad,
              [&](int64_t i, const auto& augmentation) { sample = source_.get(i, augmentation); });
  if (B == 0) bad.clear();
  NamedTensors all = make_room(sample, B);
  if (B > 0) copy_into_batch(sample, all, 0);
  for (int64_t b = 1; b < B; ++b) {
    read_sample(first + b, bad, [&](int64_t i, const auto& augmentation) {
      source_.get_into(i, augmentation, all, b);
    });
  }
  return {.tensors = std::move(all),
          .step = step,
          .first_sample = first - step_sample(step),
          .step_size = step_size(step),
          .bad_samples = std::move(bad)};
}

}  // namespace trireme::dataset
