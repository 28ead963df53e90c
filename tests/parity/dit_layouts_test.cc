// The diffusion task at every layout against one rank: loss, gradient norm and every gradient. A
// new model finds no noise and most of its gradients are zero, so every weight is drawn anew.
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/one_thread.h"
#include "tests/harness/temporary_folder.h"
#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"
#include "tests/tasks/vision/record_files.h"
#include "trireme/model/family/init.h"
#include "trireme/tasks/tasks.h"

namespace trireme::train {
namespace {

class DitLayouts : public ::testing::Test {
 protected:
  DitLayouts() { harness::write_idx_set(folder_ / "images", 16, 4, 8, 4); }

  RunConfig config_with(std::vector<Override> overrides) const {
    overrides.emplace_back("data.path", (folder_ / "images").string());
    RunConfig config = parse_config(R"(
[task]
name = "diffusion"
[model]
layers = 4
width = 24
heads = 6
[diffusion]
class_dropout = 0.3
[train]
global_batch = 8
micro_batch = 1
precision = "fp64"
)",
                                    "dit_layouts_test", overrides);
    config.task->open(/*evaluates=*/false);
    return config;
  }

  // The sample's draws depend on its index alone.
  static std::vector<dataset::Batch> read(const RunConfig& config, int64_t data_rank) {
    const dataset::Source& source = config.task->training();
    const int64_t B = config.train.micro_batch, M = config.microbatches_per_step();
    std::vector<dataset::Batch> batches;
    for (int64_t m = 0; m < M; ++m) {
      const int64_t first = (data_rank * M + m) * B;
      dataset::Batch batch{.step = 3, .first_sample = first, .step_size = 8};
      for (int64_t i = first; i < first + B; ++i) {
        for (auto& [name, tensor] : source.get(i, random_key(5, std::to_string(i)))) {
          const at::Tensor before = dataset::find_tensor(batch.tensors, name);
          if (!before.defined()) {
            batch.tensors.emplace_back(name, tensor.unsqueeze(0));
            continue;
          }
          for (auto& [other, stacked] : batch.tensors) {
            if (other == name) stacked = at::cat({stacked, tensor.unsqueeze(0)});
          }
        }
      }
      batches.push_back(std::move(batch));
    }
    return batches;
  }

  static void draw_weights(ParallelModel& model) {
    for (const parallel::Shard& shard : model.shards()) {
      model::initialise(shard.weights, shard.layout.whole_box(shard.rank),
                        shard.layout.whole_shape(), {.std = 0.1}, 7, shard.name);
    }
    model.end_step();  // ZeRO's ranks learn each other's
  }

  static StepOutcome outcome_of(const RunConfig& config, int num_ranks) {
    return run(config, num_ranks, draw_weights, read);
  }

  void check(const std::vector<Override>& overrides, int num_ranks) const {
    SCOPED_TRACE(describe(overrides));
    const RunConfig config = config_with(overrides);
    const StepOutcome expected = outcome_of(on_one_rank(config), 1);
    for (const auto& [name, gradient] : expected.gradients)
      EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
    expect_close(outcome_of(config, num_ranks), expected, 1e-10);
  }

 private:
  harness::OneThread one_thread_;
  harness::TemporaryFolder folder_;
};

TEST_F(DitLayouts, EveryAxisIsTheOneRank) {
  for (const AxisChoice& choice : axis_choices()) {
    if (std::string(choice.name) == "documents") continue;  // of texts
    for (const char* recompute : {"none", "full"}) {
      auto overrides = choice.overrides;
      overrides.emplace_back("train.recompute", recompute);
      check(overrides, choice.ranks);
    }
  }
}

TEST_F(DitLayouts, PairsOfAxesAreTheOneRank) {
  check({{"parallel.tensor", "2"}, {"parallel.context", "2"}}, 4);
  check({{"parallel.tensor", "2"},
         {"parallel.sequence_parallel", "true"},
         {"parallel.pipeline", "2"},
         {"parallel.schedule", "zero-bubble"}},
        4);
  check({{"parallel.data", "2"}, {"parallel.zero", "3"}, {"parallel.pipeline", "2"}}, 4);
  check({{"parallel.context", "2"}, {"parallel.zero", "3"}, {"train.micro_batch", "2"}}, 2);
}

}  // namespace
}  // namespace trireme::train
