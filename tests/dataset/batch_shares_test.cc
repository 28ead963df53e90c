// Data ranks with unequal shares of a batch.
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/source.h"
#include "trireme/dataset/token_source.h"

namespace trireme::dataset {
namespace {

class SharesTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = (write_counting_file(folder_ / "a", 1000), folder_ / "a");
  TokenSource source_{prefix_, {.sequence_length = 7}};
};

TEST_F(SharesTest, UnequalSharesReadEachSampleOnceInOrder) {
  const BatchLoader whole(source_, {.global_batch = 24, .micro_batch = 24});
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{3, 1}, {0, 4}, {1, 2, 5}, {8}, {1, 0, 0, 2}, {5, 0, 2}}) {
    const auto data_size = static_cast<int>(sizes.size());
    for (const bool in_turn : {false, true}) {
      for (const int64_t step : {0, 3}) {
        std::vector<at::Tensor> parts;
        const auto read = [&](int rank, int64_t index) {
          const BatchLoader loader(source_, {.global_batch = 24,
                                             .data_rank = rank,
                                             .data_size = data_size,
                                             .uneven = true,
                                             .in_turn = in_turn,
                                             .shares = {{0, sizes}}});
          if (index < loader.num_microbatches(step)) {
            const Batch batch = loader.microbatch(step, index);
            EXPECT_LE(batch.size(), sizes[static_cast<size_t>(rank)]);
            parts.push_back(batch["tokens"]);
          }
        };
        if (in_turn) {
          for (int64_t i = 0; i < 24; ++i) {
            for (int rank = 0; rank < data_size; ++rank) read(rank, i);
          }
        } else {
          for (int rank = 0; rank < data_size; ++rank) {
            for (int64_t i = 0; i < 24; ++i) read(rank, i);
          }
        }
        harness::assert_same_bits(at::cat(parts), whole.microbatch(step, 0)["tokens"], "a step");
      }
    }
  }
}

TEST_F(SharesTest, SharesChangeAtTheirSteps) {
  BatchOptions options{.global_batch = 8,
                       .data_rank = 1,
                       .data_size = 2,
                       .shares = {{0, {3, 1}}, {2, {1, 3}}, {5, {4, 0}}}};
  const BatchLoader loader(source_, options);
  std::vector<int64_t> sizes;
  for (int64_t step = 0; step < 7; ++step) {
    EXPECT_EQ(loader.num_microbatches(step), 2);
    sizes.push_back(loader.microbatch(step, 0).size());
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 1, 3, 3, 3, 0, 0}));
  EXPECT_EQ(loader.microbatch(1, 1).first_sample, 7);
  EXPECT_EQ(loader.microbatch(2, 1).first_sample, 5);
  for (const std::vector<Shares>& wrong :
       std::vector<std::vector<Shares>>{{{1, {3, 1}}},
                                        {{0, {3, 1}}, {0, {1, 3}}},
                                        {{0, {0, 0}}},
                                        {{0, {4}}},
                                        {{0, {3, 1}}, {2, {3, 2}}},
                                        {{0, {5, -1}}}}) {
    options.shares = wrong;
    EXPECT_THROW(BatchLoader(source_, options), InternalError);
  }
  options.shares = {{0, {2, 1}}};
  const std::string message =
      harness::message_of<ConfigError>([&] { BatchLoader(source_, options); });
  EXPECT_NE(message.find("global_batch is 8"), std::string::npos) << message;
  EXPECT_NE(message.find("shares, 3; set it to 6 or 9"), std::string::npos) << message;
}

}  // namespace
}  // namespace trireme::dataset
