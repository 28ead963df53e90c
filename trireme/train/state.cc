#include "trireme/train/state.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::train {

std::string to_json(const RunState& state) {
  return nlohmann::json{{"step", state.step},
                        {"next_sample", state.next_sample},
                        {"optimizer_steps", state.optimizer_steps},
                        {"config", state.config},
                        {"loss_scale", state.loss_scale},
                        {"loss_scale_steps", state.loss_scale_steps},
                        {"mean_grad_norm", state.mean_grad_norm},
                        {"good_steps", state.good_steps},
                        {"noise_squared_gradient", state.noise.squared_gradient},
                        {"noise_trace", state.noise.trace},
                        {"noise_weight", state.noise.weight}}
      .dump();
}

RunState parse_state(const std::string& json, const std::string& where) {
  try {
    const auto object = nlohmann::json::parse(json);
    // What later versions added has a default: their checkpoints stay readable.
    return {.step = object.at("step"),
            .next_sample = object.at("next_sample"),
            .optimizer_steps = object.at("optimizer_steps"),
            .config = object.at("config"),
            .loss_scale = object.value("loss_scale", 0.0),
            .loss_scale_steps = object.value("loss_scale_steps", int64_t{0}),
            .mean_grad_norm = object.value("mean_grad_norm", 0.0),
            .good_steps = object.value("good_steps", int64_t{0}),
            .noise = {.squared_gradient = object.value("noise_squared_gradient", 0.0),
                      .trace = object.value("noise_trace", 0.0),
                      .weight = object.value("noise_weight", 0.0)}};
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(concat(where, ": not the state of a training run: ", error.what()));
  }
}

std::vector<checkpoint::Entry> checkpoint_entries(const std::vector<parallel::Shard>& shards,
                                                  const Optimizer& optimizer) {
  std::vector<checkpoint::Entry> entries;
  for (const parallel::Shard& shard : shards) {
    entries.push_back({shard.name, shard.weights, shard.layout});
  }
  for (checkpoint::Entry& entry : optimizer.state()) {
    entry.name = "optimizer." + entry.name;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace trireme::train
