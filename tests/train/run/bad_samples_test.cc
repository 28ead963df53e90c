#include "trireme/train/run/bad_samples.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// Sample i is the number i. Some cannot be read.
class SomeBad : public dataset::Source {
 public:
  explicit SomeBad(std::vector<int64_t> bad) : bad_(std::move(bad)) {}
  int64_t size() const override { return 24; }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> /*key*/) const override {
    for (const int64_t bad : bad_) TRIREME_CHECK(index != bad, "file ", index, " is damaged");
    return {{"x", at::scalar_tensor(index, at::kLong)}};
  }

 private:
  std::vector<int64_t> bad_;
};

// What a rank saw of step 0.
struct Seen {
  std::vector<int64_t> numbers;
  std::optional<int64_t> count;
  std::optional<std::string> finding;
  std::string error;
};

// Reads steps of 12 on `data_size` * `alike` ranks; `alike` ranks each read the same.
std::vector<Seen> read(const std::vector<int64_t>& bad, int64_t most, int data_size, int alike = 1,
                       const std::function<std::vector<int64_t>(int)>& bad_of = {}) {
  std::vector<Seen> seen(static_cast<size_t>(data_size * alike));
  harness::run_ranks(data_size * alike, [&](comm::Communicator& world) {
    Seen& mine = seen[static_cast<size_t>(world.rank())];
    const SomeBad source(bad_of ? bad_of(world.rank()) : bad);
    dataset::BatchReader reader(source,
                                {.global_batch = 12,
                                 .micro_batch = 1,
                                 .data_rank = world.rank() / alike,
                                 .data_size = data_size,
                                 .shuffle = false,
                                 .most_replaced = most},
                                {});
    BadSamples samples(most);
    mine.error = harness::message_of<ConfigError>([&] {
      const int64_t M = reader.loader().num_microbatches(0);
      for (const dataset::Batch& batch : samples.read(world, reader, 0, 0, M)) {
        mine.numbers.push_back(batch["x"][0].item<int64_t>());
      }
    });
    mine.count = samples.count();
    mine.finding = samples.take_finding();
    EXPECT_FALSE(samples.take_finding());
  });
  return seen;
}

TEST(BadSamples, TheNextSampleTakesTheirPlaceInEveryLayout) {
  for (const int data_size : {1, 2, 3, 4}) {
    for (const int alike : {1, 2}) {
      std::vector<int64_t> numbers;
      const std::vector<Seen> ranks = read({1, 7, 8, 11}, 5, data_size, alike);
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(ranks[rank].error, "");
        // 7 and 8 for the place of 7, and 8 for its own.
        EXPECT_EQ(ranks[rank].count, 5) << data_size << " x " << alike;
        EXPECT_NE(ranks[rank].finding.value_or("").find("file 1 is damaged"), std::string::npos);
        if (rank % static_cast<size_t>(alike) != 0) continue;
        numbers.insert(numbers.end(), ranks[rank].numbers.begin(), ranks[rank].numbers.end());
      }
      EXPECT_EQ(numbers, (std::vector<int64_t>{0, 2, 2, 3, 4, 5, 6, 9, 9, 9, 10, 12}));
    }
  }
}

TEST(BadSamples, OneMoreThanAllowedEndsEveryRankWithTheLastFile) {
  for (const int data_size : {1, 2, 3, 4}) {
    for (const Seen& seen : read({1, 5, 11}, 2, data_size, 2)) {
      EXPECT_EQ(seen.error,
                "data.skip_bad_samples is 2 and 3 samples cannot be read; the last: file 11 is "
                "damaged; repair or remove such files, or raise the key");
    }
  }
}

TEST(BadSamples, TooManyInARowEndEveryRank) {
  for (const int data_size : {1, 2, 3}) {
    for (const Seen& seen : read({4, 5, 6}, 2, data_size)) {
      EXPECT_EQ(seen.error, "3 samples in a row cannot be read; the last: file 6 is damaged");
    }
  }
}

TEST(BadSamples, RanksThatDisagreeAreNamed) {
  for (const Seen& seen : read({}, 5, 1, 3, [](int rank) {
         return rank == 2 ? std::vector<int64_t>{3} : std::vector<int64_t>{};
       })) {
    EXPECT_EQ(seen.error,
              "ranks 0 and 2 read the same samples, and 0 and 1 of them are bad; expected the same "
              "files and no failing disk on every host");
  }
}

TEST(BadSamples, TheFirstEndsARunThatSkipsNone) {
  const std::vector<Seen> ranks = read({1}, 0, 1);
  EXPECT_EQ(ranks[0].error, "file 1 is damaged");
  EXPECT_FALSE(ranks[0].count);
}

TEST(BadSamples, AddUpOverStepsAndResumes) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    harness::CountingCommunicator counting(world);
    const SomeBad source({2, 20});
    dataset::BatchReader reader(source,
                                {.global_batch = 12,
                                 .micro_batch = 6,
                                 .data_rank = world.rank(),
                                 .data_size = 2,
                                 .shuffle = false,
                                 .most_replaced = 10},
                                {});
    BadSamples samples(10);
    samples.read(counting, reader, 0, 0, 1);
    EXPECT_EQ(samples.count(), 1);
    EXPECT_TRUE(samples.take_finding());
    samples.read(counting, reader, 1, 0, 1);
    EXPECT_EQ(samples.count(), 2);
    EXPECT_FALSE(samples.take_finding());
    BadSamples resumed(10);
    resumed.restore(samples.saved_count());
    resumed.read(counting, reader, 2, 0, 1);
    EXPECT_EQ(resumed.count(), 3);
    EXPECT_FALSE(resumed.take_finding());
    BadSamples off(0);
    EXPECT_FALSE(off.count());
  });
}

}  // namespace
}  // namespace trireme::train
