#include "trireme/cli/predict/answering_ranks.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/train/chain_task.h"
#include "trireme/train/parallel/asked_layout.h"

namespace trireme::cli {
namespace {

constexpr int64_t kWidth = 4;

// Two links, which answers come from. It has no data.
class TwoLinks : public train::ChainTask {
 public:
  std::unique_ptr<train::Task> clone() const override { return std::make_unique<TwoLinks>(*this); }
  void add_keys(train::Keys& /*keys*/) override {}
  train::TaskTraits traits() const override { return {.metrics = {{.name = "accuracy"}}}; }
  void open(bool /*evaluates*/) override {}
  const dataset::Source& training() const override { throw InternalError("no data"); }
  const dataset::Source* validation() const override { return nullptr; }
  train::Chain make_chain() const override {
    train::Chain chain;
    chain.add("first", torch::nn::Linear(kWidth, kWidth));
    chain.add("second", torch::nn::Linear(kWidth, 3));
    return chain;
  }
  at::Tensor loss_sum(const at::Tensor& output, const train::StageInput& batch) const override {
    return (output - batch["y"]).sum();
  }
  at::Tensor metric_states(const at::Tensor& /*output*/,
                           const train::StageInput& /*batch*/) const override {
    throw InternalError("metrics of rows without targets");
  }
};

constexpr train::TaskKind kTasks[] = {{"two-links", "", []() -> std::unique_ptr<train::Task> {
                                         return std::make_unique<TwoLinks>();
                                       }}};

train::RunConfig shared_config(const std::vector<train::Override>& layout, int num_ranks) {
  const train::RunConfig defaults = train::default_config(train::TaskTable(kTasks));
  return train::asked_config(defaults, defaults, TwoLinks().answering_chain(), layout, num_ranks);
}

dataset::Batch batch_of(double first, int64_t rows) {
  dataset::Batch batch;
  batch.tensors.emplace_back(
      "x", at::sin(at::arange(rows * kWidth, at::kDouble) + first).view({rows, kWidth}));
  return batch;
}

// What ranks say of seven batches of several sizes, as many at a time as there are copies.
std::vector<at::Tensor> ask(const std::vector<train::Override>& layout, int num_ranks,
                            size_t num_copies) {
  const train::RunConfig config = shared_config(layout, num_ranks);
  std::vector<at::Tensor> all;
  harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
    const c10::NoGradGuard no_grad;
    AnsweringRanks ranks(config, world, train::Weights::kLast);
    EXPECT_EQ(ranks.num_copies(), num_copies);
    if (world.rank() > 0) return ranks.serve();
    std::vector<dataset::Batch> batches;
    for (int64_t i = 0; i < 7; ++i) batches.push_back(batch_of(static_cast<double>(i), 1 + i % 3));
    for (size_t begin = 0; begin < batches.size(); begin += num_copies) {
      const size_t count = std::min(num_copies, batches.size() - begin);
      for (const at::Tensor& output : ranks.outputs(std::span(batches).subspan(begin, count)))
        all.push_back(output);
    }
    ranks.finish();
  });
  return all;
}

TEST(AnsweringRanks, SayWhatOneRankSays) {
  struct Layout {
    std::vector<train::Override> keys;
    int num_ranks;
    size_t num_copies;
  };
  const std::vector<at::Tensor> alone = ask({}, 1, 1);
  ASSERT_EQ(alone.size(), 7U);
  EXPECT_EQ(alone[2].sizes(), (std::vector<int64_t>{3, 3}));
  EXPECT_FALSE(at::equal(alone[0], alone[3])) << "other rows";
  const std::vector<Layout> layouts = {{{}, 2, 2},
                                       {{}, 3, 3},
                                       {{}, 4, 4},
                                       {{{"parallel.pipeline", "2"}}, 2, 1},
                                       {{{"parallel.pipeline", "2"}}, 4, 2},
                                       {{{"parallel.zero", "3"}}, 2, 2},
                                       {{{"parallel.zero", "3"}, {"parallel.shard", "2"}}, 4, 4}};
  for (const Layout& layout : layouts) {
    const std::vector<at::Tensor> shared = ask(layout.keys, layout.num_ranks, layout.num_copies);
    ASSERT_EQ(shared.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i)
      harness::assert_same_bits(shared[i], alone[i], concat(layout.num_ranks, " ranks, ", i));
  }
}

}  // namespace
}  // namespace trireme::cli
