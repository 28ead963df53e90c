// This rank's microbatches of a step. Step s holds the source's step_size(s) samples from
// step_sample(s) on. The layout only decides which rank reads which of them. The order of the
// samples is a pure function of (seed, position), so every layout and every resume sees the same
// samples in the same order. It holds no position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/source.h"

namespace trireme::dataset {

// Samples of a source in shards that are shuffled together, within an epoch.
inline constexpr int64_t kShuffleWindow = 4096;

// Thread safe.
class SampleOrder {
 public:
  // Each epoch visits all `size` samples in its own order, or if not shuffled, by index.
  // shards: the sizes of the source's parts, see Source::shard_sizes(); empty: any sample may
  //         follow any other. Otherwise an epoch takes the shards in its own order, each from its
  //         beginning, and shuffles windows of `window` samples of that sequence; so its reads stay
  //         within few shards for a while.
  SampleOrder(int64_t size, uint64_t seed, bool shuffle, std::vector<int64_t> shards = {},
              int64_t window = kShuffleWindow);
  // That of a source, which must outlive it. If shuffled, the samples of a blend come from its
  // parts as it says. Each part has the order that it has alone, with epochs of its own.
  SampleOrder(const Source& source, uint64_t seed, bool shuffle);

  int64_t size() const { return size_; }
  // The index of sample n. n counts over all ranks from the run's first step on.
  int64_t index(int64_t n) const;
  // The random numbers of sample n, for its augmentation.
  RandomKey augmentation(int64_t n) const;

 private:
  class Shards;

  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
  std::shared_ptr<const Shards> shards_;  // null without shards
  const Blend* blend_ = nullptr;          // null without parts
};

// Use of an epoch's last samples when the global batch does not divide the data.
enum class LastBatch {
  kFill,  // a batch continues in the next epoch
  kKeep,  // the epoch's last batch is smaller
  kDrop,  // they are left out; another epoch leaves out other ones
};
inline constexpr Choice<LastBatch> kLastBatches[] = {
    {"fill", LastBatch::kFill}, {"keep", LastBatch::kKeep}, {"drop", LastBatch::kDrop}};

// Samples per step, over all ranks, as a function of the step's number, from 0. A ramp starts with
// `first`, adds as many again at a time, evenly over its steps, and stays at `last`, which `first`
// divides.
struct BatchSizes {
  int64_t last = 0;
  int64_t first = 0;       // 0: no ramp
  int64_t ramp_steps = 0;  // the first one with `last`

  int64_t of(int64_t step) const;
  // Of all steps before it.
  int64_t before(int64_t step) const;
};

// Samples per forward of each data rank, from a step on.
struct Shares {
  int64_t step = 0;
  std::vector<int64_t> micro_batches{};  // by data rank; 0: that rank reads nothing
  bool operator==(const Shares&) const = default;
};

struct BatchOptions {
  int64_t global_batch = 0;  // samples per step, over all ranks
  int64_t micro_batch = 0;   // samples per forward
  int data_rank = 0;         // this rank among those that read different data
  int data_size = 1;
  // A resumed run continues at `first_sample` in step `first_step`, whatever batch it had before.
  int64_t first_step = 0;
  int64_t first_sample = 0;
  // The batch need not be divisible among the ranks: the last microbatches may be smaller or empty.
  bool uneven = false;
  uint64_t seed = 0;    // of the order and of augmentation
  bool shuffle = true;  // false for evaluation: samples in the source's order, not augmented
  LastBatch last_batch = LastBatch::kFill;
  // A sample that the source refuses with ConfigError is replaced by the source's next one, up to
  // this many in a row. 0: the error is passed on.
  int64_t most_replaced = 0;
  // false: a rank reads M microbatches that follow each other. true: ranks read one in turn.
  bool in_turn = false;
  // BatchSizes::first and ramp_steps. Steps are numbered as in microbatch().
  int64_t first_batch = 0;
  int64_t ramp_steps = 0;
  // Instead of micro_batch. Their steps ascend from 0, and all have the same sum over the ranks.
  // Empty: every rank reads micro_batch.
  std::vector<Shares> shares{};
};

// The samples of one forward.
struct Batch {
  // Each sample's tensor of that name, stacked: [B, ...], CPU. Undefined when there is none.
  at::Tensor operator[](std::string_view name) const { return find_tensor(tensors, name); }
  int64_t size() const { return tensors.front().second.size(0); }  // B

  NamedTensors tensors{};
  int64_t step = 0;
  int64_t first_sample = 0;                // index of its first sample in the step's global batch
  int64_t step_size = 0;                   // samples of the step, over all ranks
  std::vector<std::string> bad_samples{};  // the errors of those that were replaced, in their order
};

// Thread safe. The source must outlive it.
class BatchLoader {
 public:
  // Throws: ConfigError unless the samples of one forward, over all ranks, divide global_batch or
  //         `uneven` is set, and when kDrop leaves no batch in an epoch; InternalError for a ramp
  //         whose batches they do not divide, for a ramp or a blend with another last_batch than
  //         kFill, and for shares that are not as BatchOptions has them
  BatchLoader(const Source& source, BatchOptions options);
  // The same with other shares, which must have as many samples per forward over all ranks.
  BatchLoader with(std::vector<Shares> shares) const;

  // Microbatches M per rank in the step: its batch over the samples of one forward, over all ranks,
  // rounded up. The same on every rank.
  int64_t num_microbatches(int64_t step) const { return (sizes_.of(step) + unit_ - 1) / unit_; }

  // The position in the order of the step's first sample over all ranks.
  int64_t step_sample(int64_t step) const;
  // The first step, from first_step on and up to `most`, of which all samples have a position from
  // `sample` on: the number of steps that read those before. nullopt: it comes later than `most`.
  std::optional<int64_t> first_step_from(int64_t sample, int64_t most) const;
  // Samples of the step over all ranks: the global batch, or less in a ramp or with kKeep.
  int64_t step_size(int64_t step) const;
  int data_rank() const { return options_.data_rank; }

  // The position in the order of the first sample of microbatch `index`. With b samples per forward
  // on this rank and B_before on the ranks before it, ranks hold contiguous blocks:
  // step_sample(step) + M * B_before + index * b. Or, with B per forward over all ranks, in_turn:
  // step_sample(step) + index * B + B_before.
  int64_t first_sample(int64_t step, int64_t index) const;

  // Shapes:  -> each tensor [b, ...]; uneven or kKeep: [0 to b, ...]
  // Throws:  what the source throws; ConfigError when its samples are not alike, or more than
  //          most_replaced in a row cannot be read
  Batch microbatch(int64_t step, int64_t index) const;

 private:
  // This rank's part of one forward.
  struct Share {
    int64_t before = 0;  // samples of the ranks before it
    int64_t size = 0;
  };
  Share share(int64_t step) const;
  // Calls `read` with the index of sample n, or of what replaces it, and its augmentation.
  void read_sample(int64_t n, std::vector<std::string>& bad,
                   const std::function<void(int64_t, std::optional<RandomKey>)>& read) const;

  const Source& source_;
  BatchOptions options_;
  SampleOrder order_;
  BatchSizes sizes_;
  int64_t unit_ = 1;  // samples of one forward, over all ranks
};

}  // namespace trireme::dataset
