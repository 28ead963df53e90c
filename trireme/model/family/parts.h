// The division of any model: the axes of its layers, the part of a pipeline stage, and the
// placement of a parameter. Independent of the model's family.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "trireme/base/machine/weight_codes.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/context/ring_attention.h"
#include "trireme/parallel/context/sequence_split.h"
#include "trireme/parallel/expert/expert_axis.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {

// The ranks that read different data, as layers see them whose result depends on all samples of a
// forward.

// Small and freely copied. The layers must not outlive what it points to.
struct BatchAxis {
  comm::Communicator* group = nullptr;  // null: only this rank
  // Adds up how long this rank waits for others; null: not measured.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
};

// The axes on which a model's layers communicate.
struct ModelAxes {
  parallel::TensorAxis tensor{};
  comm::Communicator* context = nullptr;  // the ranks that share each sequence; null: only this one
  parallel::ContextForm context_form = parallel::ContextForm::kRing;
  parallel::RingOptions ring{};
  BatchAxis batch{};
  parallel::ExpertAxis expert{};
};

// The numbers of ranks among which the parameters are divided.
struct AxisSizes {
  int tensor = 1;
  int expert = 1;
};
// This rank's index on each of them.
struct AxisRanks {
  int tensor = 0;
  int expert = 0;
};
// The index in a parameter's layout.
inline int rank_in(const mesh::Layout& layout, AxisRanks ranks) {
  std::vector<int> coordinates;
  for (const mesh::Axis& axis : layout.axes()) {
    coordinates.push_back(axis.name == "expert" ? ranks.expert : ranks.tensor);
  }
  return mesh::rank_of(layout.axes(), coordinates);
}
inline AxisSizes sizes_of(const ModelAxes& axes) {
  return {axes.tensor.size(), axes.expert.size()};
}

// The part of a model that a pipeline stage has.
struct ModelPart {
  int64_t first_layer = 0;
  int64_t num_layers = -1;  // -1: all from first_layer on
  bool embeds = true;       // has what comes before the layers
  bool has_head = true;     // has what comes after: norm and head
  // Parameters are built on this device without memory, for whoever shards them: WithoutMemory.
  std::optional<at::Device> without_memory{};

  int64_t end() const { return first_layer + num_layers; }
  bool has(int64_t block) const { return block >= first_layer && block < end(); }
};

// Tensors by name.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
// The tensor of that name; undefined when there is none.
inline at::Tensor find_tensor(const NamedTensors& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, [](const auto& one) { return one.first; });
  return found == tensors.end() ? at::Tensor() : found->second;
}

// A tensor besides the hidden state that one part of a model makes and later parts read.
struct CarriedTensor {
  std::string name;
  int64_t source = 0;            // the part with this block makes it
  std::vector<int64_t> readers;  // parts with any of these blocks read it; ascending
  // true: each part passes it to the next one, up to the last reader, so that gradients are summed
  // from the last block to the first whatever the parts are. false: it goes straight to readers.
  bool is_relayed = false;

  bool is_received_by(const ModelPart& part) const {
    if (source >= part.first_layer) return false;
    if (is_relayed) return readers.back() >= part.first_layer;
    return std::ranges::any_of(readers, [&](int64_t block) { return part.has(block); });
  }
  bool is_sent_by(const ModelPart& part) const {
    return (is_relayed || part.has(source)) && source < part.end() && readers.back() >= part.end();
  }
};

struct ParameterPlan {
  std::string name;
  // Layout of the whole parameter over the axis "tensor", or over "expert" and "tensor" if both may
  // split it.
  mesh::Layout layout;
  bool is_trained = true;  // false: keeps its first values
  // Of a frozen weight, or of the codes and scales that it is kept as; kRun: as the other weights.
  WeightFormat format = WeightFormat::kRun;
  // Weights of the model in an element: of codes there may be two, and scales are none.
  double weights_per_element = 1;
};

// The place of a forward's samples in training. Dropout's masks depend on it, and terms that a
// layer adds to the loss.
struct TrainingPlace {
  int64_t step = 0;           // counted from 0
  int64_t first_sample = 0;   // index in the step's global batch
  int64_t num_samples = 1;    // of the step's global batch
  double gradient_scale = 1;  // factor of all gradients in the backward of this forward
};

}  // namespace trireme::model
