#include "trireme/train/chain_model.h"

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/tensors.h"
#include "tests/train/points_run.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/mesh/probe.h"
#include "trireme/train/callbacks/activation_record.h"

namespace trireme::train {
namespace {

class ChainModelTest : public PointsRun {};

// A forward's statistics are those of micro_batch * data ranks samples.
TEST_F(ChainModelTest, BatchNormTakesItsStatisticsOverTheDataRanks) {
  const auto batch_norm = [&](const std::string& name, const char* micro_batch,
                              std::vector<Override> more = {}) {
    more.insert(more.end(), {{"points.batch_norm", "true"}, {"train.micro_batch", micro_batch}});
    return config(name, more);
  };
  run(batch_norm("one", "8"), 1);
  run(batch_norm("two", "4"), 2);
  run(batch_norm("three", "3", {{"train.uneven_batches", "true"}}), 3);
  run(batch_norm("four", "2", {{"parallel.zero", "3"}}), 4);
  run(batch_norm("both", "4", {{"parallel.pipeline", "2"}}), 4);
  for (const char* name : {"two", "three", "four", "both"}) expect_same(name, "one", 1e-10);
  for (const char* zero : {"1", "2", "3"}) {
    for (const char* recompute : {"none", "full"}) {
      const std::string name = concat("zero", zero, recompute);
      run(batch_norm(name, "4",
                     {{"parallel.zero", zero},
                      {"train.recompute", recompute},
                      {"train.check_replicas_interval", "2"}}),
          2);
      expect_same(name, "two", 0);
    }
  }
}

at::Tensor saved(const std::filesystem::path& run, const std::string& name) {
  return checkpoint::load_tensor(checkpoint::latest(run / "checkpoints").value(), name);
}

TEST_F(ChainModelTest, BuffersAreInTheCheckpoint) {
  const std::vector<Override> buffers = {{"points.batch_norm", "true"}};
  run(config("whole", buffers), 2);
  EXPECT_EQ(run(config("cut", buffers), 2, /*stop_after=*/3), Outcome::kStopped);
  run(config("cut", buffers), 2);
  expect_same("cut", "whole", 0);
  EXPECT_EQ(run(config("moved", buffers), 2, /*stop_after=*/3), Outcome::kStopped);
  std::vector<Override> pipeline = buffers;
  pipeline.insert(pipeline.end(), {{"parallel.pipeline", "2"}, {"parallel.zero", "3"}});
  run(config("moved", pipeline), 4);
  expect_same("moved", "whole", 1e-10);
  for (const char* name : {"running_mean", "running_var", "num_batches_tracked"}) {
    const std::string buffer = concat("more.norm.", name);
    harness::assert_same_bits(saved(folder_ / "cut", buffer), saved(folder_ / "whole", buffer),
                              buffer);
  }
  // 6 steps of 2 microbatches.
  EXPECT_EQ(saved(folder_ / "whole", "more.norm.num_batches_tracked").item<int64_t>(), 12);
  EXPECT_EQ(saved(folder_ / "whole", "shift.constant").sizes(), at::IntArrayRef{5});
}

TEST_F(ChainModelTest, ProbesHaveTheNamesOfLinksOrTheirPlacesAtEveryLayout) {
  const auto names = [&](const std::string& name, std::vector<Override> more, int num_ranks) {
    more.insert(more.end(), {{"points.batch_norm", "true"},
                             {"record.activations", "1"},
                             {"train.micro_batch", "4"},
                             {"train.steps", "1"}});
    run(config(name, more), num_ranks);
    return checkpoint::load_global(folder_ / name / kActivationFolder / checkpoint::folder_name(1));
  };
  const auto whole = names("whole", {}, 1);
  for (const char* name : {"first", "norm", "second", "more.norm", "link.4", "head"}) {
    EXPECT_EQ(whole.count(name), 1U) << name;
    EXPECT_EQ(whole.count(concat(name, verify::kGradientEnd)), 1U) << name;
  }
  EXPECT_EQ(whole.size(), 2 * 6U);
  for (const auto& [probe, values] : names("stages", {{"parallel.pipeline", "3"}}, 3)) {
    ASSERT_TRUE(whole.contains(probe)) << probe;
    harness::assert_close(values, whole.at(probe), 1e-6, 1e-6, probe);
  }
}

TEST_F(ChainModelTest, AStepThatIsLeftOutLeavesNoStatistics) {
  // Gradients in fp16 overflow until the scale has been halved a few times.
  run(config("run", {{"points.batch_norm", "true"},
                     {"train.precision", "fp16"},
                     {"train.loss_scale", "1e7"},
                     {"train.steps", "20"}}),
      2);
  int64_t num_kept = 0;
  for (const nlohmann::json& line : metrics("run")) num_kept += line.contains("skipped") ? 0 : 1;
  EXPECT_GT(num_kept, 0);
  EXPECT_LT(num_kept, 20);
  const at::Tensor count = saved(folder_ / "run", "more.norm.num_batches_tracked");
  EXPECT_EQ(count.item<int64_t>(), 2 * num_kept);
}

}  // namespace
}  // namespace trireme::train
