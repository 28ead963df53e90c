#include "trireme/dataset/batch_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include <ATen/ATen.h>

#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

// Sample i is i. Counts what is read, and can hold readers back.
class Numbers : public Source {
 public:
  int64_t size() const override { return 1000; }
  NamedTensors get(int64_t index, std::optional<RandomKey> /*augmentation*/) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_held_; });
    num_read_ += 1;
    TRIREME_CHECK(index != bad_sample, "sample ", index, " cannot be read");
    return {{"x", at::full({2}, index, at::kLong)}};
  }

  int64_t num_read() const {
    const std::lock_guard lock(mutex_);
    return num_read_;
  }
  void hold(bool is_held) {
    const std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
  }

  int64_t bad_sample = -1;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int64_t num_read_ = 0;
  bool is_held_ = false;
};

constexpr BatchOptions kBatches = {.global_batch = 12, .micro_batch = 2, .data_size = 2};

void expect_same(const Batch& actual, const Batch& expected) {
  EXPECT_EQ(actual.step, expected.step);
  EXPECT_EQ(actual.first_sample, expected.first_sample);
  harness::assert_same_bits(actual["x"], expected["x"], "x");
}

TEST(BatchReader, ReadsTheLoadersMicrobatchesWithAnyNumberOfWorkers) {
  const Numbers source;
  const BatchLoader loader(source, kBatches);
  for (const int num_workers : {0, 1, 2, 3, 7}) {
    for (const int64_t num_ahead : {1, 4}) {
      BatchReader reader(source, kBatches, {num_workers, num_ahead, /*num_steps=*/5});
      for (int64_t step = 0; step < 5; ++step) {
        for (int64_t i = 0; i < loader.num_microbatches(0); ++i) {
          expect_same(reader.read(step, i), loader.microbatch(step, i));
        }
      }
    }
  }
}

TEST(BatchReader, GoesOnAtAnyPosition) {
  const Numbers source;
  const BatchLoader loader(source, kBatches);
  BatchReader reader(source, kBatches, {.num_workers = 2, .num_ahead = 2, .num_steps = 3});
  // Twice the same, backwards, and beyond the end.
  for (const auto& [step, index] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {0, 0}, {2, 1}, {0, 2}, {1, 0}, {7, 1}, {7, 2}}) {
    expect_same(reader.read(step, index), loader.microbatch(step, index));
  }
}

TEST(BatchReader, ReadsOtherSharesFromTheNextMicrobatchOn) {
  const Numbers source;
  const BatchLoader equal(source, kBatches);
  const std::vector<Shares> shares = {{0, {2, 2}}, {1, {1, 3}}};
  const BatchLoader unequal = equal.with(shares);
  for (const int workers : {0, 2}) {
    BatchReader reader(source, kBatches, {.num_workers = workers, .num_ahead = 3, .num_steps = 3});
    expect_same(reader.read(0, 0), equal.microbatch(0, 0));
    expect_same(reader.read(0, 1), equal.microbatch(0, 1));
    expect_same(reader.peek(1).front(), equal.microbatch(1, 0));
    reader.use_shares(shares);
    for (const auto& [step, index] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}}) {
      expect_same(reader.read(step, index), unequal.microbatch(step, index));
      EXPECT_EQ(reader.loader().microbatch(step, index).size(), step == 0 ? 2 : 1);
    }
  }
  EXPECT_THROW(equal.with({{0, {3, 3}}}), InternalError);
}

TEST(BatchReader, ReadsNoFurtherAheadThanItMayAndNotBeyondTheEnd) {
  Numbers source;
  const BatchLoader loader(source, kBatches);
  {
    BatchReader reader(source, kBatches, {.num_workers = 2, .num_ahead = 3, .num_steps = 100});
    reader.read(0, 0);
  }  // the destructor has waited for what was being read
  EXPECT_LE(source.num_read(), 2 * (1 + 2 * 3));
  EXPECT_GE(source.num_read(), 2);

  Numbers other;
  const BatchLoader short_loader(other, kBatches);
  {
    BatchReader reader(other, kBatches, {.num_workers = 4, .num_ahead = 100, .num_steps = 1});
    for (int64_t i = 0; i < short_loader.num_microbatches(0); ++i) reader.read(0, i);
  }
  EXPECT_EQ(other.num_read(), 2 * short_loader.num_microbatches(0));
}

TEST(BatchReader, ReadsAheadOfTheStep) {
  const Numbers source;
  const BatchLoader loader(source, kBatches);
  BatchReader reader(source, kBatches, {.num_workers = 1, .num_ahead = 3, .num_steps = 10});
  reader.read(0, 0);
  // The next three come without anybody asking for them.
  while (source.num_read() < 2 * 4) std::this_thread::yield();
}

TEST(BatchReader, ReturnsWhatWasPeekedWithoutReadingItAgain) {
  for (const int num_workers : {0, 2}) {
    const Numbers source;
    const BatchLoader loader(source, kBatches);
    BatchReader reader(source, kBatches, {.num_workers = num_workers, .num_steps = 2});
    for (int64_t i = 0; i < 3; ++i) expect_same(reader.read(0, i), loader.microbatch(0, i));
    const std::vector<Batch> next = reader.peek(1);
    const int64_t num_read = source.num_read();
    ASSERT_EQ(next.size(), 3U);
    for (int64_t i = 0; i < 3; ++i) {
      const Batch batch = reader.read(1, i);
      expect_same(batch, next[static_cast<size_t>(i)]);
      EXPECT_TRUE(batch["x"].is_same(next[static_cast<size_t>(i)]["x"]));
    }
    EXPECT_EQ(source.num_read(), num_read);
    reader.peek(0);
    expect_same(reader.read(1, 1), loader.microbatch(1, 1));  // drops what was peeked
    expect_same(reader.read(0, 0), loader.microbatch(0, 0));
  }
}

TEST(BatchReader, AnErrorIsThatOfTheMicrobatchThatIsAskedFor) {
  Numbers source;
  const BatchOptions batches = {.global_batch = 4, .micro_batch = 2, .shuffle = false};
  const BatchLoader loader(source, batches);
  source.bad_sample = 3;
  for (const int num_workers : {0, 2}) {
    BatchReader reader(source, batches,
                       {.num_workers = num_workers, .num_ahead = 2, .num_steps = 2});
    expect_same(reader.read(0, 0), loader.microbatch(0, 0));
    EXPECT_EQ(harness::message_of<ConfigError>([&] { reader.read(0, 1); }),
              "sample 3 cannot be read");
    expect_same(reader.read(1, 0), loader.microbatch(1, 0));
  }
}

TEST(BatchReader, SaysHowLongItWaited) {
  Numbers source;
  const BatchLoader loader(source, kBatches);
  for (const int num_workers : {0, 1}) {
    BatchReader reader(source, kBatches,
                       {.num_workers = num_workers, .num_ahead = 1, .num_steps = 1});
    EXPECT_EQ(reader.take_waiting().count(), 0);
    source.hold(true);
    std::thread releases([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      source.hold(false);
    });
    reader.read(0, 0);
    releases.join();
    EXPECT_GE(reader.take_waiting(), std::chrono::milliseconds(10));
    EXPECT_EQ(reader.take_waiting().count(), 0);
  }
}

}  // namespace
}  // namespace trireme::dataset
