// T5, classification of texts and distillation at layouts drawn from a seed, against one rank with
// the same weights; in bf16, whose roundings hide errors, against a layout with the same sums. A
// failure prints the seed; seed 217 once more, and nothing else:
//   TRIREME_LAYOUT_SEED=217 parity_test --gtest_filter='RandomTasks.*'
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/given_teacher.h"
#include "tests/parity/layout_step.h"
#include "tests/parity/random_layout.h"
#include "trireme/dataset/samples/span_source.h"

namespace trireme::train {
namespace {

// Adapters, on some layers or all, or none.
void draw_adapters(Draw& draw, const std::string& some_layers, Overrides& overrides) {
  if (draw.number(0, 3) != 0) return;
  overrides.emplace_back("lora.rank", "3");
  overrides.emplace_back("lora.targets", draw.one_of({"*", some_layers}));
  const std::string form = draw.one_of({"plain", "dropout", "magnitudes"});
  if (form == "dropout") overrides.emplace_back("lora.dropout", "0.2");
  if (form == "magnitudes") overrides.emplace_back("lora.dora", "true");
}

// What the models of these tasks share.
Overrides draw_plain_model(Draw& draw) {
  return {{"model.width", "24"},
          {"model.heads", "6"},
          {"model.kv_heads", "6"},
          {"model.layers", std::to_string(draw.number(4, 2))},
          {"model.ffn_width", std::to_string(draw.number(17, 20))},
          {"model.sequence_length", std::to_string(draw.number(7, 12))},
          {"model.vocab_size", std::to_string(draw.number(29, 20))},
          {"model.dropout", draw.one_of({"0", "0.1"})},
          {"train.micro_batch", draw.one_of({"1", "2"})},
          {"train.uneven_batches", "true"}};
}

// The length of the targets follows from that of the texts, and not every length has one.
std::optional<int64_t> target_length(int64_t inputs, double share, double span_length) {
  try {
    return dataset::span_lengths(inputs, share, span_length).targets;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

Overrides draw_t5(Draw& draw) {
  Overrides overrides = draw_plain_model(draw);
  const auto set = [&](const std::string& key, const std::string& value) {
    overrides.emplace_back(key, value);
  };
  const std::string share = draw.one_of({"0.3", "0.4", "0.5"}), span = draw.one_of({"1", "2"});
  std::optional<int64_t> targets;
  for (int64_t inputs = draw.number(8, 11); !targets; ++inputs) {
    targets = target_length(inputs, std::stod(share), std::stod(span));
    if (targets) set("model.sequence_length", std::to_string(inputs));
  }
  set("model.family", "t5");
  set("model.target_length", std::to_string(*targets));
  set("data.masked_share", share);
  set("data.span_length", span);
  set("data.sentinel_token", "28");
  set("model.decoder_layers", draw.one_of({"0", "1", "3", "6"}));
  set("model.head_width", draw.one_of({"0", "5"}));
  set("model.tied_embedding", draw.one_of({"false", "true"}));
  set("model.feed_forward", draw.one_of({"relu", "gated-gelu"}));
  set("model.relative_buckets", draw.one_of({"4", "8"}));
  set("model.relative_distance", draw.one_of({"7", "12"}));
  draw_adapters(draw, "*.q, *.wo", overrides);
  return overrides;
}

Overrides draw_classifier(Draw& draw) {
  Overrides overrides = draw_plain_model(draw);
  overrides.emplace_back("model.family", "bert");
  overrides.emplace_back("objective.name", "classify");
  overrides.emplace_back("model.classes", std::to_string(draw.number(2, 5)));
  overrides.emplace_back("model.token_types", draw.one_of({"1", "2"}));
  draw_adapters(draw, "*.query, *.output.dense", overrides);
  return overrides;
}

// A student of any causal family.
Overrides draw_student(Draw& draw) {
  Overrides student = draw_problem(draw);
  while (!model_of(config_of(student)).is_causal()) student = draw_problem(draw);
  student.emplace_back("model.vocab_size", std::to_string(draw.number(29, 20)));
  student = joined(student, kDistillation);
  student.emplace_back("objective.temperature", draw.one_of({"0.5", "1", "2"}));
  student.emplace_back("objective.weight", draw.one_of({"0.3", "1"}));
  return student;
}

// Of another width and depth, that the student's layouts can divide.
model::ModelConfig draw_teacher(Draw& draw, const model::ModelConfig& student) {
  const std::string family = draw.one_of({"llama", "gpt2", "gemma", "mixtral"});
  const int64_t length = student.sequence_length + draw.number(0, 4);
  return model_of(config_of({{"model.family", family},
                             {"model.layers", std::to_string(draw.number(4, 3))},
                             {"model.width", "36"},
                             {"model.kv_heads", "6"},
                             {"model.vocab_size", std::to_string(student.vocab_size)},
                             {"model.sequence_length", std::to_string(length)},
                             {"model.tied_embedding", family == "gpt2" ? "false" : "true"},
                             {"model.experts", family == "mixtral" ? "8" : "0"}}));
}

class RandomTasks : public LayoutsTest, public ::testing::WithParamInterface<int> {
 protected:
  void check_seed(int seed) {
    SCOPED_TRACE(concat("TRIREME_LAYOUT_SEED=", seed));
    Draw draw(seed);
    prepare = fill_adapters;
    configure = {};
    Overrides problem;
    if (seed % 3 == 0) {
      problem = draw_t5(draw);
    } else if (seed % 3 == 1) {
      problem = draw_classifier(draw);
    } else {
      problem = draw_student(draw);
      const model::ModelConfig teacher = draw_teacher(draw, model_of(config_of(problem)));
      configure = [teacher](RunConfig& config) { give_teacher(config, teacher); };
    }
    problem.emplace_back("train.global_batch", std::to_string(draw.number(8, 13)));
    const DrawnLayout layout = draw_layout(draw, problem), other = with_other_stages(draw, layout);
    const Overrides overrides = joined(problem, layout.all());
    const std::vector<int64_t> shares = draw_shares(draw, config_of(overrides));
    check(overrides, layout.ranks, 1e-10, shares);
    const Overrides fp32 = joined(overrides, {{"train.precision", "fp32"}});
    check(fp32, layout.ranks, fp32_bound(config_of(fp32)), shares);
    expect_same_bits_in_bf16(problem, layout, other, shares);
  }

 private:
  // Layouts with the same sums.
  void expect_same_bits_in_bf16(const Overrides& problem, const DrawnLayout& first,
                                const DrawnLayout& second, const std::vector<int64_t>& shares) {
    SCOPED_TRACE(concat(describe(problem), "in bf16\n", first.ranks,
                        " ranks: ", describe(first.all()), "\n", second.ranks,
                        " ranks: ", describe(second.all())));
    const auto outcome = [&](const DrawnLayout& layout) {
      RunConfig config =
          config_of(joined(joined(problem, layout.all()), {{"train.precision", "bf16"}}));
      if (configure) configure(config);
      if (!shares.empty()) config.shares = {{0, shares}};
      return run(config, layout.ranks, prepare);
    };
    try {
      expect_same_bits(outcome(second), outcome(first));
    } catch (const std::exception& error) {
      FAIL() << error.what();
    }
  }
};

// Three seeds a test, one of each task.
TEST_P(RandomTasks, AreTheOneRank) {
  for (int i = 0; i < 3 && !HasFatalFailure(); ++i) check_seed(3 * GetParam() + i);
}
// One more, of 120 and above, or the one that the environment asks for.
TEST_F(RandomTasks, OfAnySeedAreTheOneRank) { check_seed(layout_seed(120)); }
INSTANTIATE_TEST_SUITE_P(Seeds, RandomTasks, ::testing::Range(0, 40));

}  // namespace
}  // namespace trireme::train
