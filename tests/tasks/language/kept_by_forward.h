// A small language model's costs, and what a forward of it leaves for its backward.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/live_bytes.h"
#include "tests/train/language_config.h"
#include "trireme/model/model.h"
#include "trireme/plan/cost/layer_costs.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train {

inline RunConfig config_of(std::vector<Override> overrides, int num_ranks = 1) {
  RunConfig config = parse_config(R"(
[model]
layers = 6
width = 64
heads = 2
kv_heads = 1
ffn_width = 160
sequence_length = 64
vocab_size = 96
[train]
global_batch = 16
micro_batch = 2
)",
                                  "test", overrides);
  resolve(config, num_ranks);
  return config;
}

// Has what it is given in no memory.
class Elsewhere : public model::InputStore {
 public:
  int64_t put(const at::Tensor& input) override {
    bytes_ += static_cast<double>(input.nbytes());
    return 0;
  }
  at::Tensor take(int64_t /*number*/) override { return {}; }
  void drop(int64_t /*number*/) noexcept override {}

  double bytes() const { return bytes_; }

 private:
  double bytes_ = 0;
};

// What a forward of the whole model leaves for its backward.
inline double measured_activations(const RunConfig& config) {
  const auto model = model::make_model(model_of(config), 1, config.dtype());
  model->set_recompute(config.recompute_plan());
  const auto frozen = frozen_parameters(config, config.task->model().parameters({}));
  for (const auto& item : model->module().named_parameters()) {
    if (frozen.contains(item.key())) item.value().set_requires_grad(false);
  }
  const bool stores = config.leaves_memory(config.offload.activations);
  const auto store = stores ? std::make_shared<Elsewhere>() : nullptr;
  const model::StoresInputs scope(store);
  const at::Tensor tokens_BT =
      at::zeros({config.train.micro_batch, model_of(config).sequence_length}, at::kLong);
  const auto live = std::make_shared<harness::LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  std::optional<model::TrainingPlace> place;
  if (model_of(config).lora.dropout > 0) place.emplace();
  const model::Loss loss = model->loss(tokens_BT, tokens_BT, place);
  if (stores) {
    plan::Workload work = *config.task->model().workload(config);
    double bytes = 0;
    for (const model::BlockRun& run : work.recompute.runs(work.model.layers))
      bytes += static_cast<double>(run.count) * plan::stored_input_bytes(work.of_blocks(run)).sum;
    EXPECT_DOUBLE_EQ(store->bytes(), bytes);
  }
  return static_cast<double>(live->bytes());
}

inline std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) {
  return config.task->model().layer_costs(config);
}

inline double sum(const RunConfig& config, double parallel::LayerCost::*field) {
  double all = 0;
  for (const parallel::LayerCost& layer : layer_costs(config)) all += layer.*field;
  return all;
}

// What the estimate leaves out: of each block and token the norms' mean and scale and each head's
// log-sum-exp; the last norm's, positions and angles; and of what is computed again the state of a
// random generator, 5056 bytes, with its tensor.
inline double uncounted_bytes(const RunConfig& config) {
  const model::ModelConfig& model = model_of(config);
  const double item = std::max<double>(4, c10::elementSize(config.dtype()));
  const auto layers = static_cast<double>(model.layers),
             T = static_cast<double>(model.sequence_length);
  const double tokens = static_cast<double>(config.train.micro_batch) * T;
  const int64_t of_heads =
      model.heads + (model.attention.qk_norm ? model.heads + model.kv_heads : 0);
  const int of_norms = model.branch_norms == model::BranchNorms::kBoth ? 8 : 4;
  const double numbers = layers * (of_norms + static_cast<double>(of_heads)) + 2;
  const double generators = config.train.recompute == model::Recompute::kNone ? 0 : layers * 5200;
  return item * (tokens * numbers + T * static_cast<double>(model.head_width())) + 8 * T +
         generators;
}

inline std::string describe(const std::vector<Override>& overrides) {
  std::string text;
  for (const auto& [key, value] : overrides) text += key + "=" + value + " ";
  return text;
}

inline void expect_what_a_forward_keeps(const std::vector<Override>& overrides) {
  const RunConfig config = config_of(overrides);
  const double expected = sum(config, &parallel::LayerCost::activations);
  const double found = measured_activations(config);
  const std::string what = describe(overrides);
  EXPECT_GE(found, expected) << what;
  EXPECT_LE(found, expected + uncounted_bytes(config)) << what;
}

}  // namespace trireme::train
