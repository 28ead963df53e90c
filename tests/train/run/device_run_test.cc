// Training on devices, over the fake one: what a device computes is what the host computes.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/train/text_run.h"

namespace trireme::train {
namespace {

class DeviceResume : public TextRun {};

TEST_F(DeviceResume, AStoppedRunContinuesOnTheHostAndBack) {
  const auto with = [&](const std::string& name) {
    return config(name, {{"train.precision", "fp64"}, {"parallel.zero", "2"}});
  };
  run(with("whole"), 2);
  const RunConfig parts = with("parts");
  EXPECT_EQ(run_on_devices(parts, 2, /*stop_after=*/2), Outcome::kStopped);
  EXPECT_EQ(run(parts, 2, /*stop_after=*/4), Outcome::kStopped);
  EXPECT_EQ(run_on_devices(parts, 1), Outcome::kFinished);
  expect_same("parts", "whole", 1e-10, {"loss", "grad_norm"});
}

TEST_F(DeviceResume, GivesTheBitsOfNotHavingStopped) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const auto with = [&](const std::string& name) {
      return config(name + precision, {{"train.precision", precision}, {"parallel.zero", "3"}});
    };
    run_on_devices(with("whole"), 2);
    const RunConfig parts = with("parts");
    EXPECT_EQ(run_on_devices(parts, 2, /*stop_after=*/4), Outcome::kStopped);
    EXPECT_EQ(run_on_devices(parts, 2), Outcome::kFinished);
    expect_same(std::string("parts") + precision, std::string("whole") + precision, 0,
                {"loss", "grad_norm"});
  }
}

struct Layout {
  std::string name;
  int num_ranks = 1;
  std::vector<Override> overrides;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class DeviceRun : public TextRun, public ::testing::WithParamInterface<Layout> {
 protected:
  RunConfig config(const std::string& run) const {
    std::vector<Override> overrides = GetParam().overrides;
    overrides.insert(overrides.end(), {{"train.precision", "fp64"},
                                       {"train.evaluate_interval", "3"},
                                       {"train.evaluate_sequences", "5"}});
    return TextRun::config(run, overrides);
  }
};

TEST_P(DeviceRun, ComputesWhatTheHostComputes) {
  run(config("host"), GetParam().num_ranks);
  const int64_t before = harness::num_device_operators();
  run_on_devices(config("device"), GetParam().num_ranks);
  EXPECT_GT(harness::num_device_operators() - before, 1000);
  EXPECT_TRUE(metrics("device").front().at("communication_fraction").is_null());
  // Kernels of the host take sums in another order than libtorch's operators.
  expect_same("device", "host", 1e-10, {"loss", "grad_norm", "validation_loss"});
}

std::vector<Override> with_experts(std::vector<Override> overrides) {
  overrides.insert(overrides.begin(), {{"model.family", "mixtral"},
                                       {"model.experts", "5"},
                                       {"model.shared_experts", "1"},
                                       {"model.capacity_factor", "1.25"},
                                       {"model.router_z_loss", "0.01"}});
  return overrides;
}

std::vector<Layout> layouts() {
  return {
      {"one", 1, {}},
      {"ddp", 2, {}},
      {"zero1", 2, {{"parallel.zero", "1"}}},
      {"zero3", 3, {{"parallel.zero", "3"}, {"train.global_batch", "6"}}},
      {"tensor", 2, {{"parallel.tensor", "2"}}},
      {"sequence", 2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {"ring", 2, {{"parallel.context", "2"}}},
      {"ulysses",
       2,
       {{"parallel.context", "2"},
        {"parallel.context_form", "all-to-all"},
        {"model.kv_heads", "2"}}},
      {"experts", 3, with_experts({{"parallel.expert", "3"}, {"train.global_batch", "6"}})},
      {"expert_chunks", 4,
       with_experts({{"parallel.expert", "2"},
                     {"parallel.expert_chunk", "5"},
                     {"parallel.tensor", "2"},
                     {"parallel.zero", "2"}})},
      {"expert_biases", 2,
       with_experts({{"parallel.expert", "2"},
                     {"parallel.context", "2"},
                     {"model.experts", "6"},
                     {"model.router_score", "sigmoid"},
                     {"model.router_bias_rate", "0.01"},
                     {"model.expert_groups", "3"},
                     {"model.groups_per_token", "2"},
                     {"model.router_jitter", "0.05"},
                     {"model.balance_over", "batch"},
                     {"model.drop_by", "probability"}})},
      {"expert_replicas", 2,
       with_experts({{"parallel.expert", "2"}, {"parallel.expert_replicas", "2"}})},
      {"pipeline", 2, {{"parallel.pipeline", "2"}}},
      {"zero_bubble", 2, {{"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble"}}},
      {"all", 8, {{"parallel.pipeline", "2"}, {"parallel.tensor", "2"}, {"parallel.zero", "2"}}}};
}

std::vector<Layout> features() {
  return {
      {"documents", 2, {{"data.separate_documents", "true"}}},
      {"dropout", 2, {{"model.dropout", "0.1"}, {"parallel.tensor", "2"}}},
      {"gpt2", 2, {{"model.family", "gpt2"}, {"model.kv_heads", "2"}, {"model.dropout", "0.1"}}},
      {"recompute",
       2,
       {{"train.recompute", "full"}, {"parallel.zero", "3"}, {"model.dropout", "0.1"}}},
      {"selective", 2, {{"train.recompute", "selective"}, {"parallel.tensor", "2"}}},
      {"reproducible", 2, {{"train.reproducible", "true"}}},
      {"uneven", 2, {{"train.uneven_batches", "true"}, {"train.global_batch", "5"}}},
      {"noise", 2, {{"train.measure_noise", "true"}}},
      {"replicas", 2, {{"train.check_replicas_interval", "2"}}},
      {"replicas3",
       4,
       {{"train.check_replicas_interval", "2"}, {"parallel.zero", "3"}, {"parallel.shard", "2"}}},
      {"interleaved",
       2,
       {{"parallel.pipeline", "2"}, {"parallel.schedule", "interleaved"}, {"model.layers", "4"}}},
      {"int8", 2, {{"train.compression", "int8"}}},
      {"powersgd", 2, {{"train.compression", "powersgd"}}},
      {"topk", 2, {{"train.compression", "topk"}, {"train.compression_ratio", "0.1"}}},
      {"adamw_groups", 1, {{"optimizer.groups", "*norm*: decay=0.1; *proj*: rate=0.5"}}},
      {"sgd",
       2,
       {{"optimizer.name", "sgd"}, {"optimizer.momentum", "0.9"}, {"parallel.zero", "2"}}},
      {"lion", 2, {{"optimizer.name", "lion"}}},
      {"lamb", 2, {{"optimizer.name", "lamb"}}},
      {"lars", 2, {{"optimizer.name", "lars"}}},
      {"muon", 2, {{"optimizer.name", "muon"}}},
      {"adafactor", 2, {{"optimizer.name", "adafactor"}}},
      {"offload_host", 2, {{"offload.optimizer", "host"}, {"parallel.zero", "2"}}},
      {"offload_disk", 2, {{"offload.optimizer", "disk"}}},
      {"parts_on_host",
       2,
       {{"parallel.zero", "3"}, {"offload.parameters", "host"}, {"offload.gradients", "host"}}},
      {"weights_on_host", 1, {{"parallel.zero", "3"}, {"offload.parameters", "host"}}},
      {"gradients_on_disk",
       2,
       {{"parallel.zero", "2"}, {"offload.gradients", "disk"}, {"offload.optimizer", "host"}}},
      {"average", 2, {{"average.decay", "0.9"}}},
      {"histograms", 2, {{"histogram.interval", "2"}}},
  };
}

INSTANTIATE_TEST_SUITE_P(Features, DeviceRun, ::testing::ValuesIn(features()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Layouts, DeviceRun, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::train
