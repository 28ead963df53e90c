// How any model is divided: the axes of its layers, the part that a pipeline stage has, and the
// placement of a parameter. Says nothing about what the model is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/mesh/layout.h"
#include "trireme/model/family/batch_axis.h"
#include "trireme/parallel/context/context_form.h"
#include "trireme/parallel/context/ring_pass.h"
#include "trireme/parallel/expert/expert_axis.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {

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
};

struct ParameterPlan {
  std::string name;
  // Of the whole parameter, over the axis "tensor", or over "expert" and "tensor" if both may split
  // it.
  mesh::Layout layout;
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
