#include "trireme/train/callbacks/histograms.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/callbacks/fake_run.h"
#include "tests/train/tensorboard.h"
#include "tests/train/text_run.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::train {
namespace {

class HistogramsTest : public TextRun {
 protected:
  // The histograms that a run of six steps writes in steps 3 and 6.
  nlohmann::json histograms(const std::string& name, int num_ranks,
                            std::vector<Override> overrides) {
    overrides.insert(overrides.begin(),
                     {{"histogram.interval", "3"}, {"train.global_batch", "12"}});
    run(config(name, std::move(overrides)), num_ranks);
    return read_with_tensorboard(folder_ / name / "tensorboard").at("histograms");
  }

  // Buckets equal; minimum, maximum and sums within `relative`.
  static void expect_same(const nlohmann::json& actual, const nlohmann::json& expected,
                          double relative) {
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [tag, lines] : expected.items()) {
      SCOPED_TRACE(tag);
      ASSERT_TRUE(actual.contains(tag));
      ASSERT_EQ(actual.at(tag).size(), lines.size());
      for (size_t i = 0; i < lines.size(); ++i) {
        for (const size_t part : {0, 2, 3}) EXPECT_EQ(actual.at(tag)[i][part], lines[i][part]);
        const std::vector<double> a = actual.at(tag)[i][1], b = lines[i][1];
        EXPECT_EQ(a[2], b[2]);
        // Of a sum: the size of its terms.
        const double size = std::sqrt(b[2] * b[4]);
        EXPECT_NEAR(a[0], b[0], relative * std::abs(b[0]));
        EXPECT_NEAR(a[1], b[1], relative * std::abs(b[1]));
        EXPECT_NEAR(a[3], b[3], (relative + 1e-12) * size);
        EXPECT_NEAR(a[4], b[4], (relative + 1e-12) * b[4]);
      }
    }
  }
};

// Every parameter's, of the weights in the checkpoint of the same step.
TEST_F(HistogramsTest, AreOfTheWholeParametersAfterTheStep) {
  const auto written = histograms("a", 2, {{"parallel.zero", "3"}, {"checkpoint.interval", "3"}});
  for (const int step : {3, 6}) {
    const auto saved =
        checkpoint::load_global(folder_ / "a/checkpoints" / checkpoint::folder_name(step));
    size_t num_weights = 0;
    for (const auto& [tag, lines] : written.items()) {
      ASSERT_EQ(lines.size(), 2U) << tag;
      const std::string prefix = "weights/";
      if (!tag.starts_with(prefix)) continue;
      ++num_weights;
      const nlohmann::json& line = lines[step == 3 ? 0 : 1];
      EXPECT_EQ(line[0], step);
      const at::Tensor weights = saved.at(tag.substr(prefix.size()));
      const Histogram expected = histogram_of(weights);
      EXPECT_EQ(line[1][0], expected.minimum);
      EXPECT_EQ(line[1][1], expected.maximum);
      EXPECT_EQ(line[1][2], static_cast<double>(weights.numel()));
    }
    EXPECT_EQ(2 * num_weights, written.size());
    EXPECT_GT(num_weights, 10U);
  }
}

// The optimizer clips the gradients in place; the histograms are of those before.
TEST_F(HistogramsTest, GradientsAddUpToTheNormBeforeClipping) {
  for (const char* clip : {"0", "1e-3"}) {
    const std::string name = concat("clip", clip);
    const auto written = histograms(name, 2, {{"train.gradient_clip", clip}});
    double squares = 0;
    for (const auto& [tag, lines] : written.items()) {
      if (tag.starts_with("gradients/")) squares += lines[0][1][4].get<double>();
    }
    const double norm = metrics(name)[2].at("grad_norm");
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-12 * norm);
  }
}

TEST_F(HistogramsTest, ALossScaleIsUndone) {
  const auto plain = histograms("plain", 1, {{"train.precision", "fp64"}});
  const auto scaled =
      histograms("scaled", 1, {{"train.precision", "fp16"}, {"train.loss_scale", "1024"}});
  const double expected = plain.at("gradients/lm_head.weight")[0][1][4];
  EXPECT_NEAR(scaled.at("gradients/lm_head.weight")[0][1][4].get<double>(), expected,
              0.05 * expected);
}

TEST_F(HistogramsTest, AreTheSameAtEveryZeroStage) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Override order = {"parallel.gradient_order", "rank-first"};
    const auto expected =
        histograms(concat("ddp", ranks), ranks, {{"train.micro_batch", "1"}, order});
    for (const char* zero : {"1", "2", "3"}) {
      SCOPED_TRACE(concat(ranks, " ranks, zero = ", zero));
      const auto actual = histograms(concat("zero", zero, ranks), ranks,
                                     {{"train.micro_batch", "1"}, {"parallel.zero", zero}, order});
      expect_same(actual, expected, 0);
    }
  }
}

// In fp64, where the layouts' roundings are too small to move a value over a bucket's limit.
TEST_F(HistogramsTest, AreTheSameAtEveryLayout) {
  const std::vector<Override> fp64 = {
      {"train.precision", "fp64"}, {"model.heads", "4"}, {"model.kv_heads", "4"}};
  const auto expected = histograms("one", 1, fp64);
  struct Case {
    const char* name;
    int ranks;
    std::vector<Override> overrides;
  };
  const std::vector<Case> cases = {
      {"data3", 3, {}},
      {"data4", 4, {{"train.micro_batch", "1"}}},
      {"tensor2", 2, {{"parallel.tensor", "2"}}},
      {"tensor3", 3, {{"parallel.tensor", "3"}}},
      {"tensor_data", 4, {{"parallel.tensor", "2"}, {"parallel.zero", "3"}}},
      {"sequence", 2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {"pipeline2", 2, {{"parallel.pipeline", "2"}}},
      {"pipeline_data", 4, {{"parallel.pipeline", "2"}, {"parallel.zero", "1"}}},
      {"context2", 2, {{"parallel.context", "2"}}},
      {"context_zero", 4, {{"parallel.context", "2"}, {"parallel.zero", "3"}}},
      {"hybrid", 4, {{"parallel.zero", "3"}, {"parallel.shard", "2"}, {"train.micro_batch", "1"}}},
      {"all", 4, {{"parallel.tensor", "2"}, {"parallel.pipeline", "2"}}}};
  for (const Case& layout : cases) {
    SCOPED_TRACE(layout.name);
    std::vector<Override> overrides = layout.overrides;
    overrides.insert(overrides.end(), fp64.begin(), fp64.end());
    expect_same(histograms(layout.name, layout.ranks, overrides), expected, 1e-9);
  }
}

TEST_F(HistogramsTest, ChangeNothingOfTheRun) {
  run(config("plain", {{"train.global_batch", "12"}}), 2);
  histograms("watched", 2, {});
  const auto plain = metrics("plain"), watched = metrics("watched");
  ASSERT_EQ(plain.size(), watched.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i].at("loss"), watched[i].at("loss"));
}

TEST_F(HistogramsTest, EachKindMayBeLeftOut) {
  for (const auto& [key, left] : {std::pair{"histogram.weights", "gradients/"},
                                  std::pair{"histogram.gradients", "weights/"}}) {
    const auto written = histograms(concat("only_", key), 1, {{key, "false"}});
    EXPECT_GT(written.size(), 10U);
    for (const auto& [tag, lines] : written.items()) EXPECT_TRUE(tag.starts_with(left)) << tag;
  }
  const std::string error = harness::message_of<ConfigError>([&] {
    histograms("none", 1, {{"histogram.weights", "false"}, {"histogram.gradients", "false"}});
  });
  EXPECT_NE(error.find("histogram.weights"), std::string::npos) << error;
}

TEST_F(HistogramsTest, ScalarsAreBesideThem) {
  histograms("a", 1, {});
  const auto scalars = read_with_tensorboard(folder_ / "a/tensorboard").at("scalars");
  const auto lines = metrics("a");
  for (const char* key : {"loss", "grad_norm", "learning_rate"}) {
    ASSERT_EQ(scalars.at(key).size(), lines.size()) << key;
    for (size_t i = 0; i < lines.size(); ++i) {
      const double value = lines[i].at(key);
      EXPECT_EQ(scalars.at(key)[i][0], lines[i].at("step"));
      EXPECT_NEAR(scalars.at(key)[i][1].get<double>(), value, 1e-5 * value);
    }
  }
}

TEST(Histograms, FrozenParametersHaveNoGradients) {
  FakeRun run;
  run.names_ = {"elsewhere", "frozen"};
  run.shards_ = {{.name = "frozen", .weights = at::ones({2}), .layout = mesh::Layout({2}, {})}};
  run.metrics_.step = 4;
  Histograms histograms;
  set_keys(histograms, {{"histogram.interval", 2}});
  EXPECT_TRUE(histograms.wants_gradients(4));
  EXPECT_FALSE(histograms.wants_gradients(3));
  histograms.on_gradients(run);
  histograms.on_step(run);
  ASSERT_EQ(run.histograms_.size(), 4U);
  std::vector<double> nums;
  for (const NamedHistogram& named : run.histograms_) nums.push_back(named.histogram.num());
  EXPECT_EQ(nums, (std::vector<double>{0, 2, 0, 0}));
}

}  // namespace
}  // namespace trireme::train
