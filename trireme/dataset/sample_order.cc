#include "trireme/dataset/sample_order.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

// Without the stream of concat(): its locale takes longer than reading a small sample.
RandomKey numbered_key(uint64_t seed, const std::string& name, int64_t number) {
  return random_key(seed, name + std::to_string(number));
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

int64_t SampleOrder::index(int64_t n) const {
  TRIREME_ASSERT(n >= 0, "sample ", n);
  const int64_t epoch = n / size_;
  const int64_t position = n % size_;
  if (!shuffle_) return position;
  if (shards_) return shards_->index(epoch, position, size_);
  const RandomKey key = numbered_key(seed_, "data/epoch/", epoch);
  return static_cast<int64_t>(random_permutation(key, position, size_));
}

RandomKey SampleOrder::augmentation(int64_t n) const {
  return numbered_key(seed_, "data/augmentation/", n);
}

}  // namespace trireme::dataset
