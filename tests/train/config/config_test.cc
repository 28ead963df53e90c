#include "trireme/train/config/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/train/config/train_config.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The message of the ConfigError that `toml` with `overrides` and `num_ranks` ends in; "" when
// fine.
std::string error_of(std::string_view toml, std::vector<Override> overrides = {},
                     int num_ranks = 1) {
  return harness::message_of<ConfigError>([&] {
    RunConfig config = parse_config(toml, "run.toml", overrides);
    resolve(config, num_ranks);
  });
}

TEST(Config, DefaultsAreValidOnOneRank) { EXPECT_EQ(error_of(""), ""); }

TEST(Config, ReadsEverySectionAndOverridesWin) {
  const std::vector<Override> overrides = {{"train.steps", "7"},
                                           {"optimizer.learning_rate", "2e-4"}};
  const RunConfig config = parse_config(
      "[model]\nlayers = 3\n[train]\nsteps = 5\nprecision = 'fp64'\ngradient_clip = 2\n",
      "run.toml", overrides);
  EXPECT_EQ(model_of(config).layers, 3);
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.gradient_clip, 2.0);
  EXPECT_EQ(config.optimizer.learning_rate, 2e-4);
  EXPECT_EQ(config.dtype(), c10::ScalarType::Double);
}

TEST(Config, PrintedTomlReadsBackTheSame) {
  RunConfig config = language_config();
  data_of(config).path = "a \"quoted\" \\ path";
  config.optimizer.learning_rate = 0.1 + 0.2;
  config.optimizer.weight_decay = 1.0;
  const std::string text = to_toml(config);
  const RunConfig again = parse_config(text, "again.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(data_of(again).path, data_of(config).path);
  EXPECT_EQ(again.optimizer.learning_rate, config.optimizer.learning_rate);
}

TEST(Config, UnknownKeySuggestsTheNearestOne) {
  EXPECT_THAT(error_of("[train]\nstep = 5\n"),
              AllOf(HasSubstr("train.step\""), HasSubstr("\"train.steps\"")));
  EXPECT_THAT(error_of("[modle]\nlayers = 5\n"), HasSubstr("\"model.layers\""));
  EXPECT_THAT(error_of("", {{"train.stps", "5"}}), HasSubstr("\"train.steps\""));
}

TEST(Config, AKeyOutsideItsSectionIsNamed) {
  const std::string error = error_of("steps = 3\n[train]\nsteps = 4\n");
  EXPECT_NE(error.find("steps"), std::string::npos) << error;
  EXPECT_NE(error_of("\"train.steps\" = 3\n").find("run.toml:1: \"train.steps\" stands outside"),
            std::string::npos);
}

TEST(Config, WrongTypeSaysLineFoundAndExpected) {
  EXPECT_THAT(error_of("[train]\nsteps = 'many'\n"),
              AllOf(HasSubstr("run.toml:2"), HasSubstr("many"), HasSubstr("whole number")));
  EXPECT_THAT(error_of("[train]\nsteps = 1.5\n"), HasSubstr("whole number"));
  EXPECT_THAT(error_of("[train]\noverlap = 1\n"), HasSubstr("true or false"));
  EXPECT_THAT(error_of("[data]\nseed = -1\n"), HasSubstr("at least 0"));
  EXPECT_THAT(error_of("", {{"train.steps", "1O"}}), HasSubstr("1O"));
}

TEST(Config, UnknownValueListsTheRightOnes) {
  EXPECT_THAT(error_of("[model]\nfamily = 'mamba'\n"), HasSubstr("llama, mixtral, gpt2"));
  EXPECT_THAT(error_of("[optimizer]\nschedule = 'step'\n"), HasSubstr("constant, linear, cosine"));
}

TEST(Config, NumbersOutOfRangeAreRefused) {
  EXPECT_THAT(error_of("[train]\nsteps = 0\n"), HasSubstr("at least 1"));
  EXPECT_THAT(error_of("[optimizer]\nlearning_rate = nan\n"), HasSubstr("learning_rate"));
  EXPECT_THAT(error_of("[optimizer]\nbeta1 = 1.0\n"), HasSubstr("below 1"));
  EXPECT_THAT(error_of("[model]\ndropout = 1.0\n"),
              AllOf(HasSubstr("model.dropout is 1;"), HasSubstr("below 1")));
  EXPECT_THAT(error_of("[model]\ndropout = -0.1\n"), HasSubstr("model.dropout is -0.1"));
  EXPECT_THAT(error_of("[parallel]\nheap_bytes = -1\n"), HasSubstr("parallel.heap_bytes is -1"));
}

// As TOML and the command line write it.
std::string digits_of(long double number) {
  char digits[400];
  const auto result =
      number == std::floor(number)
          ? std::to_chars(digits, digits + sizeof(digits), number, std::chars_format::fixed, 0)
          : std::to_chars(digits, digits + sizeof(digits), number);
  return {digits, result.ptr};
}

// Numbers that a field's range leaves out.
std::vector<std::string> outside(const Field& field) {
  const bool is_real = std::holds_alternative<double*>(field.value);
  const Range& range = field.range;
  std::vector<std::string> numbers = {"nan", "-nan", "inf", "-inf", "1e400", "1e999999999"};
  if (!is_real) numbers.insert(numbers.end(), {"9223372036854775808", std::string(40, '9')});
  numbers.push_back(digits_of(range.minimum - (range.above_minimum ? 0 : 1)));
  // Far from 0 a double's neighbours are further away than 1.
  numbers.push_back(is_real ? digits_of(range.maximum + std::max(1.0L, range.maximum / 1000))
                            : digits_of(range.maximum + 1));
  if (range.below_maximum) numbers.push_back(digits_of(range.maximum));
  for (const long double number : {-1.0L, 0x1p31L, 0x1p62L, 0x1p63L - 1}) {
    if (!range.contains(number)) numbers.push_back(digits_of(number));
  }
  return numbers;
}

TEST(Config, EveryNumberOutsideOfItsRangeIsRefusedWithItsKey) {
  RunConfig defaults = language_config();
  int num_fields = 0;
  for (const Field& field : fields_of(defaults)) {
    if (std::holds_alternative<bool*>(field.value)) continue;
    if (std::holds_alternative<std::string*>(field.value)) continue;
    ++num_fields;
    const size_t dot = field.key.find('.');
    for (const std::string& number : outside(field)) {
      SCOPED_TRACE(field.key + " = " + number);
      const std::string toml =
          concat("[", field.key.substr(0, dot), "]\n", field.key.substr(dot + 1), " = ", number);
      EXPECT_THAT(error_of("", {{field.key, number}}),
                  AllOf(HasSubstr(field.key), HasSubstr("expected"), Not(HasSubstr("\n"))));
      // The parser itself refuses what is beyond its types.
      EXPECT_THAT(error_of(toml), AllOf(Not(""), Not(HasSubstr("\n"))));
    }
  }
  EXPECT_GT(num_fields, 50);
}

TEST(Config, TheEndsOfARangeAreInIt) {
  RunConfig defaults = language_config();
  for (const Field& field : fields_of(defaults)) {
    if (std::holds_alternative<bool*>(field.value)) continue;
    if (std::holds_alternative<std::string*>(field.value)) continue;
    if (std::holds_alternative<NamedValue>(field.value)) continue;
    const Range& range = field.range;
    for (const auto& [bound, excluded] :
         {std::pair(range.minimum, range.above_minimum), {range.maximum, range.below_maximum}}) {
      if (excluded) continue;
      const std::vector<Override> overrides = {{field.key, digits_of(bound)}};
      EXPECT_NO_THROW(parse_config("", "run.toml", overrides)) << field.key << " " << bound;
    }
  }
}

// What is multiplied of the config's numbers before anything is compared with the machine.
TEST(Config, ProductsOfTheLargestNumbersFitTheirType) {
  RunConfig config = language_config();
  for (const Field& field : fields_of(config)) {
    if (const auto* value = std::get_if<int64_t*>(&field.value)) {
      **value = static_cast<int64_t>(field.range.maximum);
    }
  }
  const auto fits = [](std::initializer_list<int64_t> numbers) {
    long double product = 1;
    for (const int64_t number : numbers) product *= static_cast<long double>(number);
    return product <= static_cast<long double>(std::numeric_limits<int64_t>::max());
  };
  const auto& parallel = config.parallel;
  EXPECT_TRUE(fits({config.train.steps, config.train.global_batch}));
  EXPECT_TRUE(fits({config.train.global_batch, model_of(config).sequence_length, 24}));
  EXPECT_TRUE(fits({config.train.micro_batch, parallel.data}));
  EXPECT_TRUE(fits({parallel.data, parallel.tensor, parallel.pipeline, parallel.context}));
  EXPECT_TRUE(fits({parallel.timeout_seconds, 1'000'000'000}));
  // Its product with the heads is refused above the largest width.
  model_of(config).attention.head_width = 0;
  for (const char* family : {"llama", "gpt2"}) {
    model_of(config).family = family;
    const long double D = model_of(config).width, F = model_of(config).ffn_width,
                      T = model_of(config).sequence_length, V = model_of(config).vocab_size;
    const long double most =
        2 * V * D + T * D + model_of(config).layers * (4 * D * D + 3 * D * F + 10 * D + 2 * F);
    EXPECT_LT(most, static_cast<long double>(std::numeric_limits<int64_t>::max()));
    EXPECT_GT(model::num_parameters(model_of(config)), 0);
  }
}

TEST(Config, TextThatIsNotUtf8IsRefused) {
  EXPECT_THAT(error_of("", {{"data.path", "\xff"}}), HasSubstr("expected UTF-8"));
  EXPECT_NE(error_of("[data]\npath = '\xff'\n"), "");
  EXPECT_EQ(error_of("", {{"data.path", "d\u00e9j\u00e0 \"vu\"\t"}}), "");
}

TEST(Config, WhatCannotBeReadIsNotTakenForAnEmptyConfig) {
  EXPECT_THAT(harness::message_of([] { load_config("/proc/self/mem", tasks::all_tasks()); }),
              HasSubstr("cannot read /proc/self/mem"));
}

TEST(Config, ValuesInMessagesAreShort) {
  const std::string many(100'000, 'x');
  EXPECT_LT(error_of("[train]\nsteps = '" + many + "'\n").size(), 200);
  EXPECT_LT(error_of("[train]\n" + many + " = 1\n").size(), 300);
  EXPECT_LT(error_of("[model]\nfamily = '" + many + "'\n").size(), 200);
  EXPECT_THAT(error_of("[data]\npath = '" + many + "'\n"), HasSubstr("at most 4096"));
  EXPECT_THAT(error_of("[train]\nsteps = [1, 2]\n"), HasSubstr("train.steps is an array"));
}

TEST(Config, TheOptimizersKeysAreChecked) {
  for (const std::string& name : optimizer_names()) {
    EXPECT_EQ(error_of("", {{"optimizer.name", name}}), "");
  }
  EXPECT_THAT(error_of("", {{"optimizer.name", "adam"}}), HasSubstr("adamw, sgd, lion"));
  EXPECT_THAT(error_of("[optimizer]\nmomentum = 1.0\n"), HasSubstr("below 1"));
  EXPECT_THAT(error_of("[optimizer]\nbase_batch = 0\n"), HasSubstr("at least 1"));
  EXPECT_THAT(error_of("[optimizer]\nbatch_scaling = 'cubic'\n"), HasSubstr("square-root"));
  EXPECT_EQ(error_of("[optimizer]\ngroups = '*.bias: decay=0'\n"), "");
  EXPECT_THAT(error_of("[optimizer]\ngroups = '*.bias'\n"),
              AllOf(HasSubstr("optimizer.groups"), HasSubstr("no colon")));
}

TEST(Config, BrokenTomlNamesTheLine) {
  EXPECT_THAT(error_of("[train]\nsteps = \n"), HasSubstr("run.toml:"));
  EXPECT_THAT(error_of("[train]\noverlap = fa\n"),
              AllOf(HasSubstr("run.toml:2"), Not(HasSubstr("\n"))));
}

TEST(Config, HeadsMustDivideTheWidth) {
  EXPECT_THAT(error_of("[model]\nwidth = 100\nheads = 3\nkv_heads = 3\n"), HasSubstr("heads"));
}

TEST(Config, RanksMustDivideTheBatch) {
  EXPECT_THAT(error_of("[train]\nglobal_batch = 16\nmicro_batch = 4\n", {}, 3),
              AllOf(HasSubstr("16"), HasSubstr("12"), HasSubstr("24")));
}

TEST(Config, ProductOfAxesMustBeTheNumberOfRanks) {
  EXPECT_THAT(error_of("[parallel]\ndata = 3\n", {}, 2),
              AllOf(HasSubstr("3"), HasSubstr("2 ranks")));
}

TEST(Config, ShardsAreFilledInAndChecked) {
  RunConfig config = parse_config("[parallel]\nzero = 2\n", "c.toml");
  resolve(config, 4);
  EXPECT_EQ(config.parallel.shard, 4);
  config = parse_config("[parallel]\nzero = 3\nshard = 2\n", "c.toml");
  resolve(config, 4);
  EXPECT_EQ(config.parallel.shard, 2);
  EXPECT_THAT(error_of("[parallel]\nzero = 4\n"), HasSubstr("parallel.zero is 4"));
  EXPECT_THAT(error_of("[parallel]\nshard = 2\n"), HasSubstr("parallel.shard is 2"));
  EXPECT_THAT(error_of("[parallel]\nzero = 1\nshard = 7\n"), HasSubstr("expected a divisor"));
}

TEST(Config, WhatDoesNotGoTogetherIsRefused) {
  EXPECT_THAT(error_of("[train]\nloss_scale = 1e300\n"), HasSubstr("at most 16777216"));
  EXPECT_THAT(error_of("[train]\nprecision = 'fp16'\nmaster_weights = false\n"),
              HasSubstr("train.master_weights"));
  EXPECT_THAT(error_of("[train]\nprecision = 'bf16'\nstochastic_rounding = true\n"),
              HasSubstr("train.stochastic_rounding"));
  EXPECT_THAT(error_of("[train]\nrecompute = 'selective'\nrecompute_modules = 'mlp'\n"),
              HasSubstr("attention_core"));
  EXPECT_THAT(error_of("[train]\nrecompute = 'selective'\nrecompute_modules = ''\n"),
              HasSubstr("recompute_modules is empty"));
}

TEST(Config, UnevenBatchesAreAllowedWhenAskedFor) {
  const std::string batch = "[train]\nglobal_batch = 5\nmicro_batch = 2\n";
  EXPECT_THAT(error_of(batch, {}, 4), HasSubstr("--train.uneven_batches=true"));
  RunConfig config = parse_config(batch + "uneven_batches = true\n", "c.toml");
  resolve(config, 4);
  EXPECT_EQ(config.microbatches_per_step(), 1);
  EXPECT_THAT(error_of(batch + "uneven_batches = true\nmeasure_noise = true\n", {}, 4),
              AllOf(HasSubstr("train.measure_noise"), HasSubstr("= 8")));
  EXPECT_THAT(error_of("[train]\nspike_factor = 0.5\n"), HasSubstr("above 1"));
}

TEST(Config, ReproducibleNeedsPowersOfTwo) {
  const std::string batch = "[train]\nreproducible = true\nmicro_batch = 2\nglobal_batch = ";
  EXPECT_EQ(error_of(batch + "16\n", {}, 4), "");
  EXPECT_THAT(error_of(batch + "12\n", {}, 2), HasSubstr("2 data ranks with 3 microbatches"));
  EXPECT_THAT(error_of(batch + "12\n", {}, 3), HasSubstr("powers of two"));
}

TEST(Config, RanksComeFirstWhereZeroNeedsIt) {
  const auto order = [](const std::string& zero, const std::string& order) {
    const std::vector<Override> overrides = {{"parallel.zero", zero},
                                             {"parallel.gradient_order", order}};
    RunConfig config =
        parse_config("[train]\nmicro_batch = 2\nglobal_batch = 16\n", "test", overrides);
    resolve(config, 2);
    return config;
  };
  for (const auto& [zero, is_first] :
       {std::pair("0", false), {"1", false}, {"2", true}, {"3", true}}) {
    EXPECT_EQ(order(zero, "auto").is_rank_first(), is_first) << zero;
    EXPECT_FALSE(order(zero, "microbatch-first").is_rank_first());
    EXPECT_TRUE(order(zero, "rank-first").is_rank_first());
  }
  EXPECT_TRUE(order("3", "auto").adds_in_fp32());
  EXPECT_FALSE(order("3", "auto").takes_turns());
}

TEST(Config, CompressionIsChecked) {
  for (const char* name : {"none", "bf16", "fp16", "int8", "powersgd", "topk"}) {
    EXPECT_EQ(error_of("", {{"train.compression", name}}), "");
  }
  EXPECT_THAT(error_of("[train]\ncompression = 'gzip'\n"), HasSubstr("powersgd, topk"));
  EXPECT_THAT(error_of("[train]\ncompression = 'int8'\nreproducible = true\n"),
              HasSubstr("train.reproducible"));
  EXPECT_THAT(error_of("[train]\ncompression = 'int8'\n[parallel]\nzero = 1\nshard = 2\n", {}, 4),
              HasSubstr("parallel.shard = 2 of 4"));
  EXPECT_THAT(error_of("[train]\ncompression = 'topk'\nprecision = 'fp16'\n"),
              HasSubstr("use bf16"));
  EXPECT_EQ(error_of("[train]\ncompression = 'int8'\nprecision = 'fp16'\n"), "");
  EXPECT_THAT(error_of("[train]\ncompression = 'powersgd'\nskip_bad_steps = 1\n"),
              HasSubstr("train.skip_bad_steps"));
  EXPECT_THAT(error_of("[train]\ncompression = 'topk'\nmeasure_noise = true\n"),
              HasSubstr("train.measure_noise"));
  EXPECT_EQ(error_of("[train]\ncompression = 'int8'\nskip_bad_steps = 1\n"), "");
  EXPECT_THAT(error_of("[train]\ncompression = 'topk'\ncompression_ratio = 0\n"),
              HasSubstr("compression_ratio is 0"));
  EXPECT_THAT(error_of("[train]\ncompression_rank = 0\n"), HasSubstr("at least 1"));
}

TEST(Config, DerivesDataRanksAndMicrobatches) {
  RunConfig config = parse_config("[train]\nglobal_batch = 24\nmicro_batch = 2\n", "run.toml");
  resolve(config, 3);
  EXPECT_EQ(config.parallel.data, 3);
  EXPECT_EQ(config.microbatches_per_step(), 4);
}

TEST(Config, HelpListsEveryKey) {
  RunConfig config = language_config();
  const std::string help = describe_config(tasks::all_tasks());
  for (const Field& field : fields_of(config)) EXPECT_THAT(help, HasSubstr("--" + field.key + "="));
}

// fields_of() throws for a key that does not.
TEST(Config, EveryKeySaysWhetherAResumedRunMayChangeIt) {
  RunConfig config = language_config();
  for (const Field& field : fields_of(config)) {
    const bool is_model = field.key.starts_with("model.");
    EXPECT_TRUE(!is_model || field.on_resume == OnResume::kMustStay) << field.key;
    // Learners decide what is computed.
    const bool is_layout = field.key.starts_with("parallel.") && field.key != "parallel.learners";
    EXPECT_TRUE(!is_layout || field.on_resume == OnResume::kMayChange) << field.key;
    const bool is_permission = field.key == "resume.allow" || field.key == "command.allow";
    EXPECT_EQ(field.on_resume == OnResume::kNotKept, is_permission) << field.key;
  }
}

TEST(Config, PermissionsAreCheckedAndNotWrittenBack) {
  const RunConfig config = parse_config("[resume]\nallow = 'data.path, model.heads'\n", "run.toml");
  EXPECT_EQ(config.resume.allow, "data.path, model.heads");
  EXPECT_THAT(to_toml(config), Not(HasSubstr("resume")));
  EXPECT_EQ(parse_config(to_toml(config), "run.toml").resume.allow, "");
  EXPECT_THAT(error_of("", {{"resume.allow", "data.path,model.hads"}}),
              AllOf(HasSubstr("model.hads"), HasSubstr("did you mean \"model.heads\"?")));
}

TEST(Config, WhatAnEarlierRunWroteMayLieOutsideOfTodaysRanges) {
  EXPECT_EQ(parse_saved_config("[train]\nsteps = -4\n", "saved", language_config()).train.steps,
            -4);
  EXPECT_THROW(parse_saved_config("[train]\nstepz = 4\n", "saved", language_config()),
               CheckpointError);
  EXPECT_THROW(parse_saved_config("[train]\nsteps = 'many'\n", "saved", language_config()),
               CheckpointError);
  const std::string kept = "[checkpoint]\nkeep = 1000000000\n";
  EXPECT_EQ(parse_saved_model(kept, "saved", language_config()).checkpoint.keep, 1'000'000'000);
  EXPECT_THROW(parse_config(kept, "now"), ConfigError);
  for (const char* wrong : {"[model]\nwidth = -4\n", "[train]\nprecision = 'fp7'\n"}) {
    EXPECT_THROW(parse_saved_model(wrong, "saved", language_config()), CheckpointError) << wrong;
  }
}

}  // namespace
}  // namespace trireme::train
