// Runs whose tables have open vocabularies.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/parameter_name.h"
#include "tests/parallel/embedding/open_oracle.h"
#include "tests/tasks/recommend/small_recommend.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/recommend/recommend_network.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/checkpoint_average.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::RunConfig;

class OpenTables : public SmallRecommend {
 protected:
  OpenTables() {
    harness::write_label_folder(folder_ / "hashes", 2, /*user_rows=*/11, /*is_hashed=*/true);
  }

  RunConfig config(const std::string& run, const std::string& data,
                   const Overrides& overrides = {}) const {
    return small_config(run, data,
                        {{"model.family", data == "pairs" ? "two-tower" : "dlrm"},
                         {"tables.open", "all"},
                         {"tables.open_max_rows", "9"},
                         {"tables.open_expire_steps", "2"},
                         {"train.steps", "6"},
                         {"train.global_batch", "8"},
                         {"train.micro_batch", "2"},
                         {"train.reproducible", "true"},
                         {"train.evaluate_interval", "3"}},
                        overrides);
  }

  void expect_same(const std::string& actual, const std::string& expected) const {
    SmallRecommend::expect_same(actual, expected, 0);
  }
  // The line about open tables of the last run.
  std::string rows_line() const {
    for (const std::string& line : findings_) {
      if (line.find(" open: ") != std::string::npos) return line;
    }
    return "";
  }
  std::string refusal(const std::string& data, const Overrides& overrides,
                      int num_ranks = 1) const {
    return refusal_of([&] { return config("broken", data, overrides); }, num_ranks);
  }
};

TEST_F(OpenTables, HaveTheSameBitsForRanksAndPlacements) {
  for (const char* const data : {"clicks", "hashes", "pairs"}) {
    for (const char* const when_full : {"evict", "evict-rarest"}) {
      const std::string prefix = concat(data, "-", when_full, "-");
      Overrides keys = {{"tables.open_when_full", when_full}};
      if (when_full == std::string("evict-rarest"))
        keys.push_back({"tables.open_halve_steps", "2"});
      run(config(prefix + "one", data, keys), 1);
      const std::string line = rows_line();
      EXPECT_THAT(line, HasSubstr("tables  3 open: ")) << data;
      EXPECT_THAT(line, AllOf(testing::Not(HasSubstr(" 0 expired")),
                              testing::Not(HasSubstr(" 0 evicted"))));
      for (const int ranks : {1, 2, 4}) {
        for (const char* const placement : {"rows", "whole", "replicated", "auto"}) {
          const std::string name = concat(prefix, placement, ranks);
          Overrides placed = keys;
          placed.push_back({"tables.placement", placement});
          run(config(name, data, placed), ranks);
          expect_same(name, prefix + "one");
          EXPECT_EQ(rows_line(), line) << name;
        }
      }
    }
  }
}

// One open table among fixed ones, of which checkpoints have only the rows that changed.
TEST_F(OpenTables, GoOnAtAnotherLayout) {
  for (const char* const rule : {"adam", "rowwise-adagrad"}) {
    for (const char* const open : {"user", "all"}) {
      const std::string prefix = concat(rule, "-", open, "-");
      const Overrides keys = {
          {"train.steps", "8"},
          {"tables.open", open},
          {"tables.optimizer", rule},
          {"tables.open_max_rows", "5"},
          {"tables.open_min_uses", "2"},
          {"checkpoint.interval", "1"},
          {"tables.open_when_full", open == std::string("all") ? "evict-rarest" : "evict"}};
      run(config(prefix + "one", "clicks", keys), 4);
      for (const int ranks : {1, 2, 4}) {
        const std::string name = concat(prefix, ranks);
        EXPECT_EQ(run(config(name, "clicks", keys), ranks == 4 ? 1 : 4, /*stop_after=*/4),
                  train::Outcome::kStopped);
        const auto newest = checkpoint::latest(folder_ / name / "checkpoints");
        EXPECT_THAT(checkpoint::verify(*newest).problems, testing::IsEmpty());
        Overrides other = keys;
        other.push_back({"tables.placement", ranks == 1 ? "rows" : "whole"});
        run(config(name, "clicks", other), ranks);
        expect_same(name, prefix + "one");
      }
    }
  }
}

// Rows lie on a disk, and a run goes on with other memory on other ranks.
TEST_F(OpenTables, HaveTheSameBitsOnADisk) {
  harness::write_label_folder(folder_ / "many", 2, /*user_rows=*/40'000);
  for (const char* const rule : {"adam", "rowwise-adagrad"}) {
    for (const char* const max_rows : {"0", "60"}) {
      const std::string prefix = concat(rule, max_rows, "-");
      const Overrides keys = {{"train.steps", "8"},
                              {"tables.optimizer", rule},
                              {"checkpoint.interval", "1"},
                              {"tables.open_max_rows", max_rows},
                              {"tables.open_expire_steps", "5"}};
      run(config(prefix + "memory", "many", keys), 1);
      Overrides disk = keys;
      disk.push_back({"tables.memory", rule == std::string("adam") ? "22200" : "8400"});
      for (const int ranks : {1, 2}) {
        const std::string name = concat(prefix, ranks);
        EXPECT_EQ(run(config(name, "many", disk), ranks, /*stop_after=*/4),
                  train::Outcome::kStopped);
        EXPECT_TRUE(std::filesystem::is_empty(folder_ / name / "tables"));
        run(config(name, "many", ranks == 1 ? disk : keys), 3 - ranks);
        expect_same(name, prefix + "memory");
      }
      EXPECT_EQ(run(config(prefix + "back", "many", keys), 2, /*stop_after=*/4),
                train::Outcome::kStopped);
      run(config(prefix + "back", "many", disk), 1);
      expect_same(prefix + "back", prefix + "memory");
    }
  }
}

// The open table is saved whole, the fixed one in patches.
TEST_F(OpenTables, AreSavedBesideThoseOfChangedRows) {
  harness::write_label_folder(folder_ / "many", 2, /*user_rows=*/40'000);
  const Overrides keys = {
      {"tables.open", "words"}, {"model.width", "16"}, {"checkpoint.interval", "1"}};
  run(config("one", "many", keys), 2);
  EXPECT_EQ(run(config("two", "many", keys), 2, /*stop_after=*/4), train::Outcome::kStopped);
  run(config("two", "many", keys), 1);
  expect_same("two", "one");
  const auto saved = checkpoint::inspect(*checkpoint::latest(folder_ / "one" / "checkpoints"));
  std::map<std::string, int64_t> patches;
  for (const auto& tensor : saved.tensors) patches[tensor.name] = tensor.num_patches;
  EXPECT_EQ(patches.at("embedding.user.weight"), 5);
  for (const char* const name :
       {"embedding.words.ids", "embedding.words.weight", "optimizer.sum.embedding.words.weight",
        "optimizer.embedding.words.last_uses", "optimizer.embedding.words.waiting_ids"}) {
    EXPECT_EQ(patches.at(name), 0) << name;
  }
}

TEST_F(OpenTables, AreNotChangedByAnEvaluation) {
  for (const char* const data : {"hashes", "pairs"}) {
    std::set<std::string> lines;
    for (const char* const interval : {"0", "1", "5"}) {
      const std::string name = concat(data, interval);
      run(config(name, data, {{"train.evaluate_interval", interval}}), 2);
      SmallRun::expect_same(name, concat(data, "0"), 0, {"loss", "grad_norm"});
      lines.insert(rows_line());
    }
    EXPECT_EQ(lines.size(), 1U);
  }
}

// The whole run with maps for tables.
class OpenTablesWhenFull : public OpenTables,
                           public testing::WithParamInterface<parallel::FullTable> {};

TEST_P(OpenTablesWhenFull, EqualAPlainRun) {
  const Overrides keys = {{"tables.open_when_full", name_of(parallel::kFullTables, GetParam())},
                          {"tables.optimizer", "adagrad"},
                          {"tables.learning_rate", "0.3"},
                          {"optimizer.name", "sgd"},
                          {"optimizer.momentum", "0"},
                          {"optimizer.nesterov", "false"},
                          {"optimizer.learning_rate", "0.1"},
                          {"optimizer.weight_decay", "0"},
                          {"optimizer.schedule", "constant"},
                          {"optimizer.warmup_steps", "0"},
                          {"train.gradient_clip", "0.05"},
                          {"train.evaluate_interval", "0"}};
  RunConfig run_config = config("run", "hashes", keys);
  run(run_config, 2);
  const dataset::FeatureData data = dataset::open_features(folder_ / "hashes");
  const RecommendProblem problem{recommend_of(run_config), data.schema};
  const TableList list = tables_of(problem, 1);
  const parallel::EmbeddingOptions options{
      .dtype = at::kDouble,
      .seed = run_config.train.seed,
      .optimizer = {.rule = parallel::RowRule::kAdaGrad, .learning_rate = 0.3}};
  std::vector<parallel::OpenOracle> tables;
  for (const parallel::TableConfig& table : list.tables) tables.emplace_back(table, options);
  const auto network = make_network(problem, run_config.train.seed);
  network->to(at::kDouble);
  dataset::BatchLoader loader(
      *data.training,
      {.global_batch = 8, .micro_batch = 8, .seed = static_cast<uint64_t>(run_config.data.seed)});
  const auto lines = metrics("run");
  for (int64_t step = 0; step < 6; ++step) {
    const dataset::Batch batch = loader.microbatch(step, 0);
    // By table: the id and the sample of each row that is read.
    std::vector<std::vector<std::pair<int64_t, int64_t>>> reads(tables.size());
    const at::Tensor vectors = at::zeros({8, list.width()}, at::kDouble);
    for (size_t t = 0; t < tables.size(); ++t) {
      const at::Tensor columns = vectors.narrow(1, 6 * static_cast<int64_t>(t), 6);
      for (int64_t b = 0; b < 8; ++b) {
        const at::Tensor lengths = batch["lengths"][b];
        const int64_t begin = lengths.narrow(0, 0, list.columns[t]).sum().item<int64_t>();
        for (int64_t i = 0; i < lengths[list.columns[t]].item<int64_t>(); ++i) {
          const auto id = batch["ids"][b][begin + i].item<int64_t>();
          reads[t].emplace_back(id, b);
          columns[b] += at::tensor(tables[t].read(id, step), at::kDouble);
        }
      }
    }
    vectors.set_requires_grad(true);
    const at::Tensor logits =
        network->forward({batch["dense"].to(at::kDouble), vectors}).squeeze(1);
    const at::Tensor loss =
        at::binary_cross_entropy_with_logits(logits, batch["label"].squeeze(1).to(at::kDouble));
    loss.backward();
    double squares = 0;
    for (const at::Tensor& each : network->parameters()) {
      squares += each.grad().square().sum().item<double>();
    }
    std::vector<std::map<int64_t, at::Tensor>> gradients(tables.size());
    for (size_t t = 0; t < tables.size(); ++t) {
      for (const auto& [id, b] : reads[t]) {
        at::Tensor& sum = gradients[t][id];
        const at::Tensor of_sample = vectors.grad()[b].narrow(0, 6 * static_cast<int64_t>(t), 6);
        sum = sum.defined() ? sum + of_sample : of_sample.clone();
      }
      for (const auto& [id, sum] : gradients[t]) squares += sum.square().sum().item<double>();
    }
    const auto& line = lines[static_cast<size_t>(step)];
    EXPECT_NEAR(line["loss"].get<double>(), loss.item<double>(), 1e-12) << step;
    EXPECT_NEAR(line["grad_norm"].get<double>(), std::sqrt(squares), 1e-12) << step;
    const at::NoGradGuard guard;
    const double clip = std::min(1.0, 0.05 / std::sqrt(squares));
    for (at::Tensor& each : network->parameters()) {
      each.sub_(each.grad() * (0.1 * clip));
      each.mutable_grad() = at::Tensor();
    }
    for (size_t t = 0; t < tables.size(); ++t) {
      std::map<int64_t, std::vector<double>> clipped;
      for (const auto& [id, sum] : gradients[t]) {
        const at::Tensor scaled = (sum * clip).contiguous();
        const auto* const begin = scaled.const_data_ptr<double>();
        clipped[id] = {begin, begin + 6};
      }
      tables[t].step(clipped, step + 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Evict, OpenTablesWhenFull,
                         testing::Values(parallel::FullTable::kEvict,
                                         parallel::FullTable::kEvictRarest),
                         [](const auto& info) {
                           return harness::parameter_name(
                               name_of(parallel::kFullTables, info.param));
                         });

// Rows of a checkpoint without uses were used once, and one without need of them leaves them out.
TEST_F(OpenTables, MayBeginAndEndToCountUses) {
  const auto run_from = [&](const char* when_full, int64_t stop_after) {
    run(config("run", "clicks",
               {{"tables.open_when_full", when_full},
                {"checkpoint.interval", "1"},
                {"resume.allow", "tables.open_when_full"}}),
        2, stop_after);
    const auto saved = checkpoint::inspect(*checkpoint::latest(folder_ / "run" / "checkpoints"));
    std::set<std::string> names;
    for (const auto& tensor : saved.tensors) names.insert(tensor.name);
    return names.contains("optimizer.embedding.user.uses");
  };
  EXPECT_FALSE(run_from("evict", 2));
  EXPECT_TRUE(run_from("evict-rarest", 4));
  EXPECT_FALSE(run_from("evict", 0));
}

TEST_F(OpenTables, EndARunThatMayNotEvictInOneLine) {
  const RunConfig full = config("run", "clicks", {{"tables.open_when_full", "refuse"}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { run(full, 2); }),
              AllOf(HasSubstr("embedding table \"embedding."),
                    HasSubstr("rows; expected at most 9 (open_max_rows); allow more")));
  // With more rows it goes on.
  run(config("run", "clicks",
             {{"tables.open_when_full", "refuse"},
              {"tables.open_max_rows", "100"},
              {"resume.allow", "tables.open_max_rows"}}),
      2);
  EXPECT_THAT(rows_line(), HasSubstr(" 0 evicted"));
}

// A run that begins with another one's weights, in memory or on a disk, and changes them by nothing
// in its only step.
TEST_F(OpenTables, BeginWithTheRowsOfAnotherRun) {
  const auto newest = [&](const char* run) {
    return checkpoint::load_global(*checkpoint::latest(folder_ / run / "checkpoints"));
  };
  run(config("run", "clicks"), 1);
  const auto before = newest("run");
  for (const auto& [ranks, memory] : {std::pair{1, "0"}, {2, "0"}, {2, "9000"}}) {
    const std::string name = concat("next", ranks, "-", memory);
    const Overrides keys = {{"init.folder", (folder_ / "run").string()},
                            {"tables.memory", memory},
                            {"tables.open_max_rows", "0"},
                            {"tables.learning_rate", "0"},
                            {"optimizer.learning_rate", "1e-300"},
                            {"train.steps", "1"},
                            {"train.evaluate_interval", "0"}};
    run(config(name, "clicks", keys), ranks);
    const auto after = newest(name.c_str());
    int64_t num_unused = 0;
    for (const std::string table : {"embedding.user", "embedding.words", "embedding.shop"}) {
      std::map<int64_t, int64_t> places;
      const at::Tensor& ids = after.at(table + ".ids");
      for (int64_t i = 0; i < ids.numel(); ++i) places[ids[i].item<int64_t>()] = i;
      const at::Tensor& old = before.at(table + ".ids");
      EXPECT_GT(old.numel(), 0);
      for (int64_t i = 0; i < old.numel(); ++i) {
        const auto id = old[i].item<int64_t>();
        ASSERT_TRUE(places.contains(id)) << id;
        const int64_t place = places[id];
        EXPECT_TRUE(at::equal(after.at(table + ".weight")[place], before.at(table + ".weight")[i]));
        if (after.at("optimizer." + table + ".last_uses")[place].item<int64_t>() != 0) continue;
        ++num_unused;
        EXPECT_EQ(after.at("optimizer.sum." + table + ".weight")[place].item<double>(), 0);
      }
    }
    EXPECT_GT(num_unused, 0);
  }
  const Overrides lacking = {{"init.folder", (folder_ / "run").string()}, {"init.names", "[!e]*"}};
  EXPECT_THAT(
      harness::message_of<CheckpointError>([&] { run(config("lacking", "clicks", lacking), 2); }),
      AllOf(HasSubstr("missing"), HasSubstr("embedding.user.ids")));
  Overrides drawn = lacking;
  drawn.push_back({"init.missing", "embedding.*"});
  run(config("drawn", "clicks", drawn), 2);
}

TEST_F(OpenTables, AreNotAveraged) {
  run(config("run", "clicks", {{"tables.open", "user"}}), 1);
  const auto all = checkpoint::list(folder_ / "run" / "checkpoints");
  EXPECT_THAT(harness::message_of<CheckpointError>(
                  [&] { train::average_checkpoints(all, folder_ / "average", all_tasks()); }),
              HasSubstr("the table \"embedding.user\" has an open vocabulary"));
}

TEST_F(OpenTables, RefuseKeysThatDoNotFitInOneLine) {
  EXPECT_THAT(refusal("hashes", {{"tables.open", "user,shop"}}),
              AllOf(HasSubstr("has hashed ids for \"words\""), HasSubstr("--ids rows")));
  EXPECT_THAT(refusal("clicks", {{"tables.open", "user, nobody"}}),
              AllOf(HasSubstr("tables.open names \"nobody\""), HasSubstr("user, words")));
  EXPECT_THAT(refusal("clicks", {{"tables.open", ""}}),
              AllOf(HasSubstr("tables.open is empty"), HasSubstr("remove the limits")));
  EXPECT_THAT(
      refusal("clicks", {{"tables.open_max_rows", "0"}, {"tables.open_when_full", "refuse"}}),
      HasSubstr("tables.open_when_full is \"refuse\", and tables.open_max_rows is 0"));
  EXPECT_THAT(
      refusal("clicks", {{"tables.open_max_rows", "0"}, {"tables.open_when_full", "evict-rarest"}}),
      HasSubstr("tables.open_when_full is \"evict-rarest\", and tables.open_max_rows is 0"));
  EXPECT_THAT(refusal("clicks", {{"tables.open_halve_steps", "7"}}),
              AllOf(HasSubstr("open_halve_steps is 7"), HasSubstr("counts no uses")));
  EXPECT_THAT(refusal("clicks", {{"tables.open", ""},
                                 {"tables.open_max_rows", "0"},
                                 {"tables.open_expire_steps", "0"},
                                 {"tables.open_halve_steps", "7"}}),
              HasSubstr("tables.open is empty"));
  EXPECT_THAT(refusal("clicks", {{"tables.open_max_rows", "-1"}}), HasSubstr("open_max_rows"));
  EXPECT_THAT(refusal("clicks", {{"tables.open_min_uses", "0"}}), HasSubstr("open_min_uses"));
  EXPECT_THAT(refusal("clicks", {{"tables.open_when_full", "shrug"}}), HasSubstr("evict"));
  EXPECT_THAT(refusal("clicks", {{"tables.placement", "columns"}}),
              HasSubstr("whose rows must be whole"));
  EXPECT_EQ(refusal("clicks", {{"tables.memory", "1000"}}), "");
  EXPECT_THAT(refusal("clicks",
                      {{"parallel.servers", "1"},
                       {"train.gradient_clip", "0"},
                       {"train.evaluate_interval", "0"},
                       {"train.reproducible", "false"}},
                      2),
              HasSubstr("with parallel.servers, whose tables have a fixed number of rows"));
}

}  // namespace
}  // namespace trireme::tasks
