#include "trireme/train/state.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::train {

std::string to_json(const RunState& state) {
  return nlohmann::json{{"step", state.step},
                        {"next_sample", state.next_sample},
                        {"optimizer_steps", state.optimizer_steps},
                        {"config", state.config}}
      .dump();
}

RunState parse_state(const std::string& json, const std::string& where) {
  try {
    const auto object = nlohmann::json::parse(json);
    return {object.at("step"), object.at("next_sample"), object.at("optimizer_steps"),
            object.at("config")};
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(concat(where, ": not the state of a training run: ", error.what()));
  }
}

std::vector<checkpoint::Entry> checkpoint_entries(const NamedTensors& parameters,
                                                  const AdamW& optimizer,
                                                  const mesh::DeviceMesh& mesh) {
  std::vector<checkpoint::Entry> entries;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    entries.push_back({name, tensor.detach(), mesh::Layout(tensor.sizes().vec(), mesh.axes())});
  };
  for (const auto& [name, tensor] : parameters) add(name, tensor);
  for (const auto& [name, tensor] : optimizer.state()) add("optimizer." + name, tensor);
  return entries;
}

}  // namespace trireme::train
