#include "trireme/tasks/recommend/recommend.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/parameter_name.h"
#include "tests/tasks/recommend/small_recommend.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/tasks/recommend/recommend_network.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::RunConfig;

class RecommendTest : public SmallRecommend {
 protected:
  RecommendTest() { harness::write_label_folder(folder_ / "classes", 4); }

  RunConfig config(const std::string& run, const std::string& family, Overrides overrides = {},
                   const std::string& data = "clicks") const {
    return small_config(run, family == "two-tower" ? "pairs" : data,
                        {{"model.family", family},
                         {"model.cross_layers", "2"},
                         {"model.cross_rank", "3"},
                         {"train.steps", "4"},
                         {"train.reproducible", "true"},
                         {"train.evaluate_interval", "2"}},
                        overrides);
  }

  std::string refusal(const std::string& family, const Overrides& overrides,
                      int num_ranks = 1) const {
    return refusal_of([&] { return config("broken", family, overrides); }, num_ranks);
  }
};

class RecommendFamilies : public RecommendTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, RecommendFamilies,
                         testing::Values("dlrm", "dlrm-dcnv2", "wide-deep", "two-tower"),
                         [](const auto& info) { return harness::parameter_name(info.param); });

TEST_P(RecommendFamilies, HasTheSameBitsForRanksPlacementsZeroAndRecompute) {
  const std::string family = GetParam();
  run(config("one", family), 1);
  for (const int ranks : {1, 2, 4}) {
    for (const char* const placement : {"rows", "columns", "whole", "replicated", "auto"}) {
      const std::string name = concat(placement, ranks);
      run(config(name, family, {{"tables.placement", placement}}), ranks);
      expect_same(name, "one", 0);
    }
  }
  for (const char* const zero : {"1", "2", "3"}) {
    const std::string name = concat("zero", zero);
    run(config(name, family, {{"parallel.zero", zero}, {"train.recompute", "full"}}), 2);
    expect_same(name, "one", 0);
  }
}

TEST_P(RecommendFamilies, IsCloseOnUnevenRanks) {
  const std::string family = GetParam();
  // The negatives of two-tower are those of a microbatch, so its samples must stay together.
  const bool is_two_tower = family == "two-tower";
  const Overrides keys = {{"train.reproducible", "false"},
                          {"train.uneven_batches", "true"},
                          {"train.global_batch", is_two_tower ? "20" : "17"}};
  run(config("one", family, keys), 1);
  for (const int ranks : {2, 3}) {
    run(config(concat("uneven", ranks), family, keys), ranks);
    expect_same(concat("uneven", ranks), "one", 1e-10);
  }
}

// Saved with tables by rows on 4 ranks, continued by columns on 2 and whole on 1.
TEST_P(RecommendFamilies, ContinuesAtAnotherLayout) {
  const std::string family = GetParam();
  for (const std::string optimizer : {"adam", "rowwise-adagrad"}) {
    const Overrides keys = {{"train.steps", "7"}, {"tables.optimizer", optimizer}};
    run(config(optimizer, family, keys), 4);
    for (const std::string placement : {"columns", "whole"}) {
      const std::string name = concat(optimizer, "-", placement);
      EXPECT_EQ(run(config(name, family, keys), 4, /*stop_after=*/3), train::Outcome::kStopped);
      Overrides other = keys;
      other.push_back({"tables.placement", placement});
      run(config(name, family, other), placement == "columns" ? 2 : 1);
      expect_same(name, optimizer, 0);
    }
  }
}

// The state of a row that is split by columns is one number on each rank with columns.
TEST_F(RecommendTest, ContinuesByColumnsByRowsAndWhole) {
  const Overrides keys = {{"train.steps", "9"}};
  run(config("reference", "dlrm", keys), 1);
  int stop_after = 3;
  for (const auto& [placement, ranks] :
       {std::pair{"columns", 4}, {"rows", 2}, {"columns", 2}, {"whole", 1}}) {
    Overrides there = keys;
    there.push_back({"tables.placement", placement});
    run(config("chain", "dlrm", there), ranks, stop_after < 9 ? stop_after : 0);
    stop_after += 2;
  }
  expect_same("chain", "reference", 0);
}

// Most rows of the largest table are on a disk, and a run on two ranks continues without one.
TEST_P(RecommendFamilies, HasTheSameBitsWithTablesOnADisk) {
  const std::string family = GetParam();
  const Overrides keys = {{"tables.optimizer", "adam"},
                          {"train.global_batch", "4"},
                          {"train.micro_batch", "1"},
                          {"train.evaluate_interval", "0"},
                          {"train.steps", "8"}};
  // Room for the rows of a batch, but not for all.
  const bool is_wide = family == "wide-deep";
  const char* const memory_of_one = is_wide ? "5400" : "4600";
  const char* const memory_of_two = is_wide ? "3700" : family == "two-tower" ? "2400" : "3200";
  run(config("memory", family, keys), 1);
  for (const int ranks : {1, 2}) {
    const std::string name = concat("disk", ranks);
    Overrides disk = keys;
    disk.push_back({"tables.memory", ranks == 1 ? memory_of_one : memory_of_two});
    EXPECT_EQ(run(config(name, family, disk), ranks, /*stop_after=*/4), train::Outcome::kStopped);
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / name / "tables"));
    run(config(name, family, ranks == 1 ? disk : keys), ranks);
    expect_same(name, "memory", 0);
  }
}

// A table of which a step touches a few rows: a run continues from its patches at any layout.
TEST_F(RecommendTest, ContinuesFromCheckpointsOfChangedRows) {
  harness::write_label_folder(folder_ / "many", 2, /*user_rows=*/40'000);
  const auto patches = [&](const std::string& run) {
    int64_t most = 0;
    const auto newest = checkpoint::latest(folder_ / run / "checkpoints");
    EXPECT_THAT(checkpoint::verify(*newest).problems, testing::IsEmpty());
    for (const auto& tensor : checkpoint::inspect(*newest).tensors)
      most = std::max(most, tensor.num_patches);
    return most;
  };
  Overrides keys = {{"model.width", "16"}, {"train.steps", "6"}, {"checkpoint.interval", "1"}};
  run(config("one", "dlrm", keys, "many"), 2);
  EXPECT_EQ(patches("one"), 5);
  for (const char* const placement : {"rows", "whole"}) {
    const RunConfig first = config(placement, "dlrm", keys, "many");
    EXPECT_EQ(run(first, 2, /*stop_after=*/4), train::Outcome::kStopped);
    EXPECT_EQ(patches(placement), 2);
    Overrides other = keys;
    other.push_back({"tables.placement", placement});
    run(config(placement, "dlrm", other, "many"), placement == std::string("rows") ? 1 : 2);
    expect_same(placement, "one", 0);
    EXPECT_LE(patches(placement), 2) << "the first save of a process is whole";
  }
  Overrides disk = keys;
  disk.push_back({"tables.memory", "100000"});
  run(config("disk", "dlrm", disk, "many"), 2);
  expect_same("disk", "one", 0);
  EXPECT_EQ(patches("disk"), 5);
  keys.push_back({"checkpoint.incremental", "false"});
  run(config("whole-saves", "dlrm", keys, "many"), 2);
  EXPECT_EQ(patches("whole-saves"), 0);
}

// The whole run written plainly: embedding_bag, dense gradients of whole tables, SGD.
TEST_F(RecommendTest, EqualsAPlainRun) {
  const Overrides keys = {{"tables.optimizer", "sgd"},     {"tables.learning_rate", "0.3"},
                          {"optimizer.name", "sgd"},       {"optimizer.momentum", "0"},
                          {"optimizer.nesterov", "false"}, {"optimizer.learning_rate", "0.1"},
                          {"optimizer.weight_decay", "0"}, {"optimizer.schedule", "constant"},
                          {"optimizer.warmup_steps", "0"}, {"train.gradient_clip", "0.05"},
                          {"train.evaluate_interval", "0"}};
  for (const char* const family : {"dlrm", "dlrm-dcnv2", "wide-deep"}) {
    const std::string name = concat("run-", family);
    RunConfig run_config = config(name, family, keys);
    run(run_config, 2);
    const dataset::FeatureData data = dataset::open_features(folder_ / "clicks");
    const RecommendProblem problem{recommend_of(run_config), data.schema};
    const TableList list = tables_of(problem, 1);
    parallel::EmbeddingTables initial(list.tables, nullptr,
                                      {.dtype = at::kDouble,
                                       .seed = run_config.train.seed,
                                       .optimizer = {.rule = parallel::RowRule::kSgd}});
    std::vector<at::Tensor> weights;
    for (const parallel::TableTensor& table : initial.state()) {
      weights.push_back(table.local.clone().requires_grad_());
    }
    const auto network = make_network(problem, run_config.train.seed);
    network->to(at::kDouble);
    dataset::BatchLoader loader(*data.training,
                                {.global_batch = 16,
                                 .micro_batch = 16,
                                 .seed = static_cast<uint64_t>(run_config.data.seed)});
    const auto lines = metrics(name);
    for (int64_t step = 0; step < 4; ++step) {
      const dataset::Batch batch = loader.microbatch(step, 0);
      std::vector<at::Tensor> vectors;
      for (size_t t = 0; t < weights.size(); ++t) {
        std::vector<int64_t> ids, offsets;
        for (int64_t b = 0; b < 16; ++b) {
          offsets.push_back(std::ssize(ids));
          const at::Tensor lengths = batch["lengths"][b];
          const int64_t begin = lengths.narrow(0, 0, list.columns[t]).sum().item<int64_t>();
          for (int64_t i = 0; i < lengths[list.columns[t]].item<int64_t>(); ++i) {
            ids.push_back(batch["ids"][b][begin + i].item<int64_t>());
          }
        }
        vectors.push_back(std::get<0>(at::embedding_bag(weights[t], at::tensor(ids, at::kLong),
                                                        at::tensor(offsets, at::kLong))));
      }
      const at::Tensor logits =
          network->forward({batch["dense"].to(at::kDouble), at::cat(vectors, 1)}).squeeze(1);
      const at::Tensor loss =
          at::binary_cross_entropy_with_logits(logits, batch["label"].squeeze(1).to(at::kDouble));
      loss.backward();
      std::vector<at::Tensor> dense = network->parameters();
      double squares = 0;
      for (const auto& all : {dense, weights}) {
        for (const at::Tensor& each : all) squares += each.grad().square().sum().item<double>();
      }
      const auto& line = lines[static_cast<size_t>(step)];
      EXPECT_NEAR(line["loss"].get<double>(), loss.item<double>(), 1e-12) << family << step;
      EXPECT_NEAR(line["grad_norm"].get<double>(), std::sqrt(squares), 1e-12) << family << step;
      const at::NoGradGuard guard;
      const double clip = std::min(1.0, 0.05 / std::sqrt(squares));
      for (at::Tensor& each : dense) each.sub_(each.grad() * (0.1 * clip));
      for (at::Tensor& each : weights) each.sub_(each.grad() * (0.3 * clip));
      for (const auto& all : {dense, weights}) {
        for (const at::Tensor& each : all) each.mutable_grad() = at::Tensor();
      }
    }
  }
}

TEST_F(RecommendTest, LearnsClicksClassesAndItems) {
  const Overrides keys = {{"train.steps", "150"},
                          {"train.evaluate_interval", "150"},
                          {"checkpoint.interval", "0"},
                          {"optimizer.warmup_steps", "5"}};
  run(config("clicks-run", "dlrm", keys), 2);
  EXPECT_GT(metrics("clicks-run").back()["validation_auc"].get<double>(), 0.75);
  EXPECT_LT(metrics("clicks-run").back()["normalised_entropy"].get<double>(), 0.9);
  run(config("classes-run", "wide-deep", keys, "classes"), 2);
  EXPECT_GT(metrics("classes-run").back()["validation_accuracy"].get<double>(), 0.5);  // 0.25
  run(config("items-run", "two-tower", keys), 2);
  EXPECT_GT(metrics("items-run").back()["validation_recall_at_10"].get<double>(), 0.7);  // 10 / 17
}

TEST_F(RecommendTest, ASkippedStepLeavesTheTablesAsTheyAre) {
  const Overrides keys = {{"train.skip_bad_steps", "4"},
                          {"train.spike_factor", "1.0000001"},
                          {"train.steps", "30"},
                          {"train.evaluate_interval", "1"}};
  run(config("one", "dlrm", keys), 1);
  run(config("two", "dlrm", keys), 2);
  expect_same("two", "one", 0);
  bool has_skipped = false;
  const auto lines = metrics("one");
  for (size_t i = 1; i < lines.size(); ++i) {
    if (!lines[i].value("skipped", false)) continue;
    has_skipped = true;
    EXPECT_EQ(lines[i]["validation_loss"], lines[i - 1]["validation_loss"]);
  }
  EXPECT_TRUE(has_skipped);
}

TEST_F(RecommendTest, RefusesInOneLine) {
  EXPECT_THAT(refusal("dlrm", {{"model.top", "12,x"}}), HasSubstr("model.top is \"12,x\""));
  EXPECT_THAT(refusal("dlrm", {{"train.measure_noise", "true"}}), HasSubstr("measure_noise"));
  EXPECT_THAT(refusal("dlrm", {{"parallel.gradient_order", "rank-first"}}),
              HasSubstr("the rows of tables are summed rank by rank; set it to microbatch-first"));
  EXPECT_THAT(refusal("dlrm", {{"data.path", "/nowhere"}}), HasSubstr("/nowhere"));
  EXPECT_THAT(refusal("dlrm", {{"data.path", (folder_ / "pairs").string()}}),
              HasSubstr("has no labels"));
  EXPECT_THAT(refusal("two-tower", {{"data.path", (folder_ / "clicks").string()}}),
              HasSubstr("has no items"));
  EXPECT_THAT(refusal("dlrm", {{"parallel.tensor", "2"}}, 2), HasSubstr("tensor"));
  EXPECT_THAT(refusal("dlrm", {{"optimizer.learning_rate", "0"}}),
              HasSubstr("tables.learning_rate"));
}

}  // namespace
}  // namespace trireme::tasks
