// The floating-point operations of a training step where only some parameters are trained, by the
// parts of a language model that run one after the other. Allocates nothing.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

// Floating-point operations of a part, of a sequence. A product y = x W takes as many for the
// gradient of x as in forward, and as many for that of W. A frozen W needs none of the latter. An x
// behind which nothing is trained needs none of the former: a part before the first one with a
// trained parameter has no backward. In that first part, unless it is the head, the gradients of
// all inputs are counted.
struct TrainedPart {
  double forward = 0;
  double input_gradients = 0;
  double weight_gradients = 0;
  bool has_backward = false;

  double flops() const { return forward + input_gradients + weight_gradients; }
};

struct TrainedParts {
  bool trains_input = false;          // a parameter before the blocks
  std::vector<TrainedPart> images{};  // the tower's patches and its blocks, the projector
  std::vector<TrainedPart> blocks{};  // those of a decoder follow the encoder's
  TrainedPart head{};

  // Adapters are parameters like others; the product of a magnitude's two factors is left out.
  double flops_per_sequence() const;
};

// The part that each parameter of `plan` is in: 0: before the blocks; 1 + i: block i, and what is
// between the block before it and it; 1 + num_blocks(): behind the last.
std::vector<size_t> parts_of(const ModelPlan& plan);

// frozen: the names of the parameters that are not trained
TrainedParts trained_parts(const ModelPlan& plan, const std::set<std::string>& frozen);

}  // namespace trireme::model
