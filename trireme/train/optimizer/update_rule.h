// What an optimizer does to one parameter, apart from whose parameters they are and where their
// states live. A rule holds no tensors, and an item's update depends on that item alone: the items
// of a step may come in any order, a few at a time, as their states arrive from host or disk.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/shard.h"

namespace trireme::train {

// One tensor that a rule keeps for a parameter: zero at first, of the dtype of the weights.
struct StateSpec {
  std::string name;                  // "exp_avg"
  std::vector<int64_t> local_shape;  // this rank's
  mesh::Layout layout;               // of the whole tensor, over the axes of the parameter's layout
};

// One parameter's part of a step; all tensors contiguous and on one device.
struct UpdateItem {
  at::Tensor weights;               // fp32 or fp64; updated in place
  at::Tensor gradient;              // same shape; maybe of lower precision
  std::vector<at::Tensor> state{};  // as state_of() lists them; updated in place
  double weight_decay = 0;
  double rate_scale = 1;  // times the learning rate
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  virtual std::vector<StateSpec> state_of(const parallel::Shard& shard) const = 0;

  // step: number of this update, from 1. Computes in the dtype of the weights. Items without an
  // element are left alone. No gradient is recorded.
  virtual void update(std::span<const UpdateItem> items, double learning_rate,
                      int64_t step) const = 0;

  // true: a parameter lies whole on one rank and is empty on the others. false: the update is
  // elementwise, and has the same bits on the pieces of a parameter that is cut at multiples of 64
  // elements, for any number of threads.
  virtual bool needs_whole_parameters() const = 0;
};

// A state of the parameter's own shape, lying as the parameter does.
StateSpec state_like(const parallel::Shard& shard, const std::string& name);

// The gradient in the dtype of the weights; itself when it has it.
at::Tensor converted_gradient(const UpdateItem& item);

}  // namespace trireme::train
