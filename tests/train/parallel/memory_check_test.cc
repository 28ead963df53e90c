#include "trireme/train/run/memory_check.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RunConfig memory_config(const std::vector<Override>& overrides, int num_ranks = 1) {
  std::vector<Override> all = {{"model.vocab_size", "1000"}};
  all.insert(all.end(), overrides.begin(), overrides.end());
  RunConfig config = parse_config("", "test", all);
  resolve(config, num_ranks);
  return config;
}

std::string error_of(const RunConfig& config, int num_ranks, double available) {
  return harness::message_of<ConfigError>(
      [&] { check_memory(config, num_ranks, static_cast<int64_t>(available)); });
}

TEST(LeastMemory, CountsStatesActivationsAndSamples) {
  const RunConfig config = memory_config({});
  const MemoryNeed need = least_memory(config);
  const auto parameters = static_cast<double>(model::num_parameters(model_of(config)));
  // fp32: weights, gradients and AdamW's two moments; 4 microbatches, of which one more gradient
  // sum is no more than the gradients.
  EXPECT_DOUBLE_EQ(need.states, 16 * parameters);
  EXPECT_DOUBLE_EQ(need.samples, 16.0 * 256 * 16);
  EXPECT_GT(need.activations, 4.0 * 256 * 256 * 6);
  const RunConfig shared = memory_config({{"parallel.zero", "3"}}, 4);
  EXPECT_DOUBLE_EQ(least_memory(shared).samples, need.samples / 4);
  EXPECT_LT(least_memory(shared).states, need.states / 2);
  const RunConfig stages = memory_config({{"parallel.pipeline", "2"}}, 2);
  EXPECT_DOUBLE_EQ(least_memory(stages).states, need.states / 2);
}

TEST(CheckMemory, RefusesWhatIsMoreThanThereIs) {
  const RunConfig config = memory_config({});
  const double need = least_memory(config).total();
  EXPECT_EQ(error_of(config, 1, std::ceil(need)), "");
  EXPECT_NE(error_of(config, 1, need - 1), "");
  EXPECT_EQ(error_of(config, 3, std::ceil(3 * need)), "");
  EXPECT_THAT(error_of(config, 3, 3 * need - 1), HasSubstr("for 3 ranks"));
}

TEST(CheckMemory, NamesTheKeysOfTheLargestPart) {
  constexpr double kGiB = 1 << 30;
  EXPECT_THAT(error_of(memory_config({{"train.global_batch", "10000000"}}), 1, kGiB),
              AllOf(HasSubstr("train.global_batch (10000000)"), HasSubstr("has 1 GiB")));
  EXPECT_THAT(
      error_of(memory_config({{"train.micro_batch", "16384"}, {"train.global_batch", "16384"}}), 1,
               kGiB),
      HasSubstr("train.micro_batch (16384)"));
  for (const char* key : {"model.width", "model.ffn_width", "model.vocab_size"}) {
    EXPECT_THAT(
        error_of(memory_config({{key, "1048576"}, {"model.sequence_length", "8"}}), 1, kGiB),
        AllOf(HasSubstr(concat(key, " (1048576)")), HasSubstr("parallel.zero = 3")));
  }
}

TEST(CheckMemory, TheLargestSizesAreANumberAndNoOverflow) {
  const RunConfig config = memory_config({{"model.layers", "65536"},
                                          {"model.width", "1048576"},
                                          {"model.ffn_width", "4194304"},
                                          {"model.sequence_length", "16777216"},
                                          {"model.vocab_size", "67108864"},
                                          {"train.global_batch", "10000000"},
                                          {"train.micro_batch", "10000000"}});
  EXPECT_GT(least_memory(config).total(), 1e20);
  EXPECT_NE(error_of(config, 1, 1e12), "");
}

}  // namespace
}  // namespace trireme::train
