#include "trireme/train/run/memory_check.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

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

TEST(CheckMemory, ServersOfDecoupledLearnersHaveNoModel) {
  const std::vector<Override> keys{{"parallel.learners", "2"},
                                   {"outer.method", "decoupled"},
                                   {"parallel.servers", "2"},
                                   {"train.global_batch", "16"}};
  const RunConfig config = memory_config(keys, 4);
  const double need = least_memory(config).total();
  EXPECT_EQ(error_of(config, 4, std::ceil(2 * need)), "");
  EXPECT_NE(error_of(config, 4, 2 * need - 1), "");
  std::vector<Override> plain = keys;
  plain.insert(plain.end(), {{"outer.optimizer", "sgd"}, {"outer.momentum", "0"}});
  const double momentum =
      least_memory(config).states - least_memory(memory_config(plain, 4)).states;
  EXPECT_DOUBLE_EQ(momentum, 4.0 * static_cast<double>(model::num_parameters(model_of(config))));
}

TEST(CheckMemory, CountsWhatAnExchangeOfLearnersHolds) {
  const auto need = [](std::vector<Override> keys) {
    keys.insert(keys.end(), {{"train.global_batch", "16"}, {"outer.every", "4"}});
    return least_memory(memory_config(keys, 4));
  };
  const auto weights = static_cast<double>(
      model::num_parameters(model_of(memory_config({{"train.global_batch", "16"}}, 4))));
  const MemoryNeed four = need({{"parallel.learners", "4"}});
  // The difference, three quarters of the terms, and the sums.
  EXPECT_DOUBLE_EQ(four.exchange, (1 + 0.75 + 1) * 4 * weights);
  EXPECT_DOUBLE_EQ(four.total(),
                   four.states + std::max(four.activations, four.exchange) + four.samples);
  const MemoryNeed behind = need({{"parallel.learners", "4"}, {"outer.delay", "1"}});
  EXPECT_DOUBLE_EQ(behind.states, four.states + four.exchange);
  EXPECT_EQ(behind.exchange, 0);
  EXPECT_DOUBLE_EQ(need({{"parallel.learners", "4"}, {"outer.fragments", "2"}}).exchange,
                   four.exchange / 2);
  // Two learners of two ranks, each of which gets half of the other's.
  EXPECT_DOUBLE_EQ(need({{"parallel.learners", "2"}}).exchange, 1.5 * 4 * weights);
  const MemoryNeed coded = need({{"parallel.learners", "4"}, {"outer.wire", "int8"}});
  EXPECT_DOUBLE_EQ(coded.exchange, 4 * weights);
  EXPECT_DOUBLE_EQ(coded.states, four.states + 4 * weights) << "what messages lose";
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

// The number after `words`; 0 without them.
int64_t number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == text.npos ? 0 : std::stoll(text.substr(at + words.size()));
}

TEST(CheckMemory, SaysHowFarToLowerTheKey) {
  constexpr double kGiB = 1 << 30;
  for (const int ranks : {1, 2}) {
    const auto error_with = [&](const char* key, int64_t value) {
      const std::string batch = std::to_string(value * ranks);
      return error_of(
          memory_config({{"train.global_batch", batch}, {key, std::to_string(value)}}, ranks),
          ranks, kGiB);
    };
    const std::string error = error_with("train.micro_batch", 16384);
    const int64_t most = number_after(error, "train.micro_batch (16384) to at most ");
    ASSERT_GT(most, 0) << error;
    EXPECT_EQ(error_with("train.micro_batch", most), "");
    // The batch goes down with it, and its samples were counted.
    EXPECT_NE(error_with("train.micro_batch", most + most / 2 + 1), "") << error;
  }
  // A model of several machines' memory: with ZeRO-3 on as many it fits, and not on one less.
  const std::vector<Override> large = {
      {"model.ffn_width", "65536"}, {"model.sequence_length", "8"}, {"train.micro_batch", "1"}};
  const std::string error = error_of(memory_config(large), 1, kGiB);
  const int64_t machines = number_after(error, "parallel.zero = 3 on at least ");
  ASSERT_GT(machines, 1) << error;
  const auto error_on = [&](int64_t ranks) {
    std::vector<Override> sharded = large;
    sharded.insert(sharded.end(),
                   {{"parallel.zero", "3"}, {"train.global_batch", std::to_string(ranks)}});
    return error_of(memory_config(sharded, static_cast<int>(ranks)), 1, kGiB);
  };
  EXPECT_EQ(error_on(machines), "");
  EXPECT_NE(error_on(machines - 1), "");
}

TEST(MemoryAdvice, SaysWhatEachKeySaves) {
  const std::vector<Override> some = {{"train.micro_batch", "8"}, {"train.global_batch", "32"}};
  const std::string text = memory_advice(memory_config(some, 4), 4);
  for (const char* words : {"a rank needs at least ", "--parallel.zero=3 (", " GiB less)",
                            "--train.recompute=full (", "--train.micro_batch=4 (",
                            "--optimizer.state_dtype=int8 (", " or --offload.optimizer=disk"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  // What saves nothing is not named.
  const std::string alone = memory_advice(memory_config({{"train.recompute", "full"},
                                                         {"train.micro_batch", "1"},
                                                         {"optimizer.state_dtype", "int8"}}),
                                          1);
  for (const char* words : {"zero=3", "recompute", "micro_batch", "state_dtype"}) {
    EXPECT_THAT(alone, ::testing::Not(HasSubstr(words)));
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
