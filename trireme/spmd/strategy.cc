#include "trireme/spmd/strategy.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/spmd/redistribute.h"

namespace trireme::spmd {
namespace {

using Cuts = std::vector<int64_t>;

// One axis of one operator.
class AxisChoice {
 public:
  AxisChoice(const Grid& grid, int axis, const Form& form, c10::ArrayRef<Argument> arguments,
             int fixed)
      : grid_(grid),
        axis_(axis),
        size_(grid.size(axis)),
        form_(form),
        arguments_(arguments),
        fixed_(fixed) {}

  // Into best(). `chosen` has the places of the axes outside of this one.
  bool run(const Strategy& chosen) {
    chosen_ = &chosen;
    try_replicated();
    uint32_t tried = 0;
    for (const Factors& tensor : form_.inputs) {
      for (const Factor factor : tensor) {
        if (factor == kWholeDim || (tried >> factor & 1U) != 0) continue;
        tried |= 1U << factor;
        try_factor(factor);
      }
    }
    for (const TensorSet set : form_.linear) try_linear(set);
    return best_cost_ < std::numeric_limits<double>::infinity();
  }
  const c10::SmallVector<Place, 4>& inputs() const { return best_inputs_; }
  const c10::SmallVector<Place, 3>& outputs() const { return best_outputs_; }

 private:
  void begin() {
    inputs_.assign(form_.inputs.size(), Place());
    outputs_.assign(form_.outputs.size(), Place());
  }

  const Place& now(size_t input) const { return (*arguments_[input].places)[axis_]; }
  bool is_there(size_t input) const { return arguments_[input].places != nullptr; }

  void try_replicated() {
    begin();
    consider();
  }

  void try_linear(TensorSet set) {
    begin();
    bool is_partial = false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if ((set >> i & 1U) == 0 || !is_there(i)) continue;
      inputs_[i] = Place::partial();
      is_partial |= now(i).is_partial();
    }
    if (!is_partial) return;
    for (Place& place : outputs_) place = Place::partial();
    consider();
  }

  void try_factor(Factor factor) {
    begin();
    const std::optional<Cuts> cuts = cuts_of(factor);  // of the factor
    if (!cuts) return;
    const bool is_sum = (form_.contracted >> factor & 1U) != 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!is_there(i)) continue;
      const auto& dims = form_.inputs[i];
      const auto at = std::ranges::find(dims, factor);
      if (at == dims.end()) {
        if (is_sum && (form_.added >> i & 1U) != 0) inputs_[i] = Place::partial();
        continue;
      }
      const size_t dim = at - dims.begin();
      if (!split(inputs_[i], *cuts, dim, form_.input_scale(i, dim), chosen_->inputs[i])) return;
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto& dims = form_.outputs[i];
      const auto at = std::ranges::find(dims, factor);
      if (at == dims.end()) {
        if (is_sum) outputs_[i] = Place::partial();
        continue;
      }
      const size_t dim = at - dims.begin();
      if (!split(outputs_[i], *cuts, dim, form_.output_scale(dim), chosen_->outputs[i])) return;
    }
    consider();
  }

  // Of the first argument that is split there; else even in the first that has the factor.
  std::optional<Cuts> cuts_of(Factor factor) const {
    std::optional<Cuts> even;
    for (size_t i = 0; i < form_.inputs.size(); ++i) {
      const auto& dims = form_.inputs[i];
      const auto at = std::ranges::find(dims, factor);
      if (at == dims.end() || !is_there(i)) continue;
      const int dim = static_cast<int>(at - dims.begin());
      const bool is_split = now(i).is_sharded(dim);
      if (!is_split && even) continue;
      Cuts cuts = positions(is_split ? now(i) : Place::sharded(dim), arguments_[i].sizes[dim]);
      for (int64_t& cut : cuts) cut *= form_.input_scale(i, dim);
      if (is_split) return cuts;
      even = std::move(cuts);
    }
    return even;
  }

  Cuts positions(const Place& place, int64_t length) const {
    Cuts cuts = {0};
    for (int c = 0; c < size_; ++c) {
      const mesh::Range part = part_of(place, length, size_, c);
      cuts.push_back(part.offset + part.size);
    }
    return cuts;
  }

  // False: the cuts are not between this dimension's elements, or another axis splits it too, in a
  // way that goes with even blocks only.
  bool split(Place& place, const Cuts& cuts, size_t dim, int64_t scale, const Places& outer) const {
    if (std::ranges::any_of(cuts, [&](int64_t cut) { return cut % scale != 0; })) return false;
    place = Place::sharded(static_cast<int>(dim));
    Cuts own = cuts;
    for (int64_t& cut : own) cut /= scale;
    const bool is_even = own == positions(place, own.back());
    if (!is_even) place.cuts = std::make_shared<const Cuts>(std::move(own));
    int64_t parts = size_;
    for (int axis = 0; axis < axis_; ++axis) {
      if (!outer[axis].is_sharded(static_cast<int>(dim))) continue;
      if (!is_even || outer[axis].cuts) return false;
      parts *= grid_.size(axis);
    }
    const bool is_view = !form_.input_scales.empty() || !form_.output_scales.empty();
    return parts == size_ || !is_view || cuts.back() / scale % parts == 0;
  }

  void consider() {
    if (fixed_ >= 0 && inputs_[fixed_] != now(fixed_)) return;
    if (fixed_ >= 0 && !outputs_.empty() && outputs_[0] != now(fixed_)) return;
    double cost = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!is_there(i) || now(i) == inputs_[i]) continue;
      // A change without bytes is better left out; less memory is no reason by itself.
      cost += 1 + bytes_moved(now(i), inputs_[i], size_, arguments_[i].bytes);
      // A sum in two steps costs what it costs in one.
      if (now(i).is_partial() && inputs_[i].is_sharded())
        cost += bytes_moved(now(i), inputs_[i], size_, arguments_[i].bytes);
    }
    if (cost >= best_cost_) return;
    best_cost_ = cost;
    best_inputs_ = inputs_;
    best_outputs_ = outputs_;
  }

  const Grid& grid_;
  int axis_;
  int size_;
  const Form& form_;
  c10::ArrayRef<Argument> arguments_;
  int fixed_;
  const Strategy* chosen_ = nullptr;
  c10::SmallVector<Place, 4> inputs_{}, best_inputs_{};
  c10::SmallVector<Place, 3> outputs_{}, best_outputs_{};
  double best_cost_ = std::numeric_limits<double>::infinity();
};

}  // namespace

bool choose(const Grid& grid, const Form& form, c10::ArrayRef<Argument> arguments, int fixed,
            Strategy& strategy) {
  strategy.inputs.assign(form.inputs.size(), Places());
  strategy.outputs.assign(form.outputs.size(), Places());
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    AxisChoice choice(grid, axis, form, arguments, fixed);
    if (!choice.run(strategy)) return false;
    for (size_t i = 0; i < form.inputs.size(); ++i) {
      strategy.inputs[i][axis] = choice.inputs()[i];
    }
    for (size_t i = 0; i < form.outputs.size(); ++i) {
      strategy.outputs[i][axis] = choice.outputs()[i];
    }
  }
  return true;
}

int64_t length_of(const Form& form, c10::ArrayRef<Argument> arguments, Factor factor) {
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    for (size_t dim = 0; dim < form.inputs[i].size(); ++dim) {
      if (form.inputs[i][dim] != factor || arguments[i].places == nullptr) continue;
      return arguments[i].sizes[dim] * form.input_scale(i, dim);
    }
  }
  return -1;
}

}  // namespace trireme::spmd
