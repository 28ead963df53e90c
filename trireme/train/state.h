// What a checkpoint holds besides tensors, and the list of tensors it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/gradient_norm.h"
#include "trireme/train/optimizer.h"

namespace trireme::train {

// Where a run stands; independent of the layout.
struct RunState {
  int64_t step = 0;         // finished steps
  int64_t next_sample = 0;  // data cursor: global index of the next sequence
  int64_t optimizer_steps = 0;
  std::string config;  // resolved TOML; holds the seeds and the schedule
};
std::string to_json(const RunState& state);
// Throws: CheckpointError when a key is missing; `where` is the checkpoint's path
RunState parse_state(const std::string& json, const std::string& where);

// The model's parameters under their names, and the optimizer's state under "optimizer.<name>".
std::vector<checkpoint::Entry> checkpoint_entries(const NamedTensors& parameters,
                                                  const AdamW& optimizer,
                                                  const mesh::DeviceMesh& mesh);

}  // namespace trireme::train
