#include "trireme/spmd/strategy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/spmd/redistribute.h"

namespace trireme::spmd {
namespace {

using Cuts = c10::SmallVector<int64_t, 9>;  // no allocation for up to 8 ranks

std::shared_ptr<const std::vector<int64_t>> shared(const Cuts& cuts) {
  return std::make_shared<const std::vector<int64_t>>(cuts.begin(), cuts.end());
}

// Of a factor.
struct Split {
  Cuts cuts{};  // of a period, where there is one
  int64_t period = 0;
};

// One axis of one operator.
class AxisChoice {
 public:
  AxisChoice(const Grid& grid, int axis, const Form& form, c10::ArrayRef<Argument> arguments,
             int fixed, bool all_fixed)
      : grid_(grid),
        axis_(axis),
        size_(grid.size(axis)),
        form_(form),
        arguments_(arguments),
        fixed_(fixed),
        all_fixed_(all_fixed) {}

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
    for (const JoinedFactor& joined : form_.joined) {
      if (!joined.is_output) try_factor(joined.factor);
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
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if ((form_.sums >> i & 1U) != 0) outputs_[i] = Place::partial();
    }
    consider();
  }

  void try_factor(Factor factor) {
    begin();
    const std::optional<Split> split = split_of(factor);
    if (!split) return;
    granule_ = factor == form_.granular ? form_.granule : 1;
    if (std::ranges::any_of(split->cuts, [&](int64_t cut) { return cut % granule_ != 0; })) return;
    length_ = length_of(form_, arguments_, factor);
    const bool is_sum = (form_.contracted >> factor & 1U) != 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!is_there(i)) continue;
      const int dim = dim_with(form_.inputs[i], factor);
      if (dim >= 0) {
        if (!put(inputs_[i], *split, dim, form_.input_scale(i, dim), chosen_->inputs[i])) return;
      } else if (const JoinedFactor* joined = joined_with(factor, false)) {
        if (!put_joined(inputs_[i], *split, *joined, chosen_->inputs[i])) return;
      } else if (is_sum && (form_.added >> i & 1U) != 0) {
        inputs_[i] = Place::partial();
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const int dim = dim_with(form_.outputs[i], factor);
      if (dim >= 0) {
        if (!put(outputs_[i], *split, dim, form_.output_scale(i, dim), chosen_->outputs[i])) return;
      } else if (const JoinedFactor* joined = joined_with(factor, true)) {
        if (!put_joined(outputs_[i], *split, *joined, chosen_->outputs[i])) return;
      } else if (is_sum && (form_.sums >> i & 1U) != 0) {
        outputs_[i] = Place::partial();
      }
    }
    const bool is_exchanged = (form_.exchanged >> factor & 1U) != 0;
    consider(is_exchanged ? bytes_moved(Place::partial(), {}, size_, form_.exchanged_bytes) : 0);
  }

  static int dim_with(const Factors& dims, Factor factor) {
    const auto at = std::ranges::find(dims, factor);
    return at == dims.end() ? -1 : static_cast<int>(at - dims.begin());
  }

  // Of the first argument that is split there; else even in the first that has the factor.
  std::optional<Split> split_of(Factor factor) const {
    std::optional<Split> even;
    for (size_t i = 0; i < form_.inputs.size(); ++i) {
      const int dim = dim_with(form_.inputs[i], factor);
      if (dim < 0 || !is_there(i)) continue;
      const bool is_split = now(i).is_sharded(dim);
      if (!is_split && even) continue;
      if (is_split && now(i).period != 0) {
        // Its elements are not in the order of the dimension: only as such does it pass.
        if (form_.has_scales() || !form_.joined.empty()) continue;
        return Split{positions(now(i), now(i).period), now(i).period};
      }
      Cuts cuts = positions(is_split ? now(i) : Place::sharded(dim), arguments_[i].sizes[dim]);
      for (int64_t& cut : cuts) cut *= form_.input_scale(i, dim);
      if (is_split) return Split{std::move(cuts)};
      even = Split{std::move(cuts)};
    }
    for (const JoinedFactor& joined : form_.joined) {
      if (joined.is_output || joined.factor != factor) continue;
      const Place& place = now(0);
      if (place.is_sharded(joined.dim) && place.period == joined.period)
        return Split{positions(place, joined.period)};
    }
    return even;
  }

  const JoinedFactor* joined_with(Factor factor, bool is_output) const {
    for (const JoinedFactor& joined : form_.joined) {
      if (joined.is_output == is_output && joined.factor == factor) return &joined;
    }
    return nullptr;
  }

  bool put_joined(Place& place, const Split& split, const JoinedFactor& joined,
                  const Places& outer) const {
    for (int axis = 0; axis < axis_; ++axis) {
      if (outer[axis].is_sharded(joined.dim) && outer[axis].period != 0) return false;
    }
    place = Place::sharded(joined.dim);
    place.period = joined.period;
    if (split.cuts != positions(place, joined.period)) place.cuts = shared(split.cuts);
    return true;
  }

  Cuts positions(const Place& place, int64_t length) const {
    return positions(place, length, size_);
  }
  static Cuts positions(const Place& place, int64_t length, int size) {
    Cuts cuts = {0};
    for (int c = 0; c < size; ++c) {
      const mesh::Range part = part_of(place, length, size, c);
      cuts.push_back(part.offset + part.size);
    }
    return cuts;
  }

  // False: the cuts are not between this dimension's elements, or another axis splits it too, in a
  // way that does not go with them.
  bool put(Place& place, const Split& split, int dim, int64_t scale, const Places& outer) const {
    if (std::ranges::any_of(split.cuts, [&](int64_t cut) { return cut % scale != 0; }))
      return false;
    place = Place::sharded(dim);
    place.period = split.period;
    Cuts own = split.cuts;
    for (int64_t& cut : own) cut /= scale;
    const bool is_even = own == positions(place, own.back());
    if (!is_even) place.cuts = shared(own);
    int64_t parts = size_;
    for (int axis = 0; axis < axis_; ++axis) {
      if (!outer[axis].is_sharded(dim)) continue;
      if (!go_together(outer[axis], grid_.size(axis), place, own)) return false;
      if (outer[axis].period == 0 && place.period == 0) parts *= grid_.size(axis);
    }
    if (parts == size_) return true;
    if (granule_ > 1 && split.cuts.back() % (granule_ * parts) != 0) return false;
    return !form_.has_scales() || split.cuts.back() / scale % parts == 0;
  }

  // Two axes on one dimension: the inner one splits evenly what the outer one leaves, or one of
  // them splits each period and the other lies between periods.
  bool go_together(const Place& outer, int outer_size, const Place& inner,
                   const Cuts& inner_cuts) const {
    if (outer.period != 0 && inner.period != 0) return false;
    if (outer.period == 0 && inner.period == 0) return !outer.cuts && !inner.cuts;
    if (outer.period != 0) {
      return std::ranges::all_of(inner_cuts, [&](int64_t cut) { return cut % outer.period == 0; });
    }
    return std::ranges::all_of(positions(outer, length_, outer_size),
                               [&](int64_t cut) { return cut % inner.period == 0; });
  }

  // extra: bytes that the rule exchanges by itself
  void consider(double extra = 0) {
    if (fixed_ >= 0 && inputs_[fixed_] != now(fixed_)) return;
    if (fixed_ >= 0 && !outputs_.empty() && outputs_[0] != now(fixed_)) return;
    double cost = extra;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!is_there(i) || now(i) == inputs_[i]) continue;
      if (all_fixed_) return;
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
  bool all_fixed_;
  const Strategy* chosen_ = nullptr;
  int64_t granule_ = 1, length_ = 0;  // of the factor that is tried
  c10::SmallVector<Place, 4> inputs_{}, best_inputs_{};
  c10::SmallVector<Place, 3> outputs_{}, best_outputs_{};
  double best_cost_ = std::numeric_limits<double>::infinity();
};

bool choose_anew(const Grid& grid, const Form& form, c10::ArrayRef<Argument> arguments, int fixed,
                 Strategy& strategy, bool all_fixed) {
  strategy.inputs.assign(form.inputs.size(), Places());
  strategy.outputs.assign(form.outputs.size(), Places());
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    AxisChoice choice(grid, axis, form, arguments, fixed, all_fixed);
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

// A choice and all that it was made from. A grid counts by the sizes of its axes.
class KeptChoice {
 public:
  KeptChoice(const Grid& grid, const Form& form, c10::ArrayRef<Argument> arguments, int fixed,
             bool all_fixed)
      : axes_(axes_of(grid)), form_(form), fixed_(fixed), all_fixed_(all_fixed) {
    for (const Argument& argument : arguments) {
      arguments_.push_back({{argument.sizes.begin(), argument.sizes.end()},
                            argument.places ? *argument.places : Places(),
                            argument.places != nullptr,
                            argument.bytes});
    }
    is_found_ = choose_anew(grid, form, arguments, fixed, strategy_, all_fixed);
  }

  bool is_for(const Grid& grid, const Form& form, c10::ArrayRef<Argument> arguments, int fixed,
              bool all_fixed) const {
    return fixed == fixed_ && all_fixed == all_fixed_ && axes_of(grid) == axes_ &&
           std::ranges::equal(arguments, arguments_, is_same) && form == form_;
  }
  bool give(Strategy& strategy) const {
    strategy = strategy_;
    return is_found_;
  }

 private:
  using Axes = std::array<int, kMostAxes>;
  struct Kept {
    c10::SmallVector<int64_t, 6> sizes;
    Places places;
    bool is_there;
    double bytes;
  };

  static Axes axes_of(const Grid& grid) {
    Axes axes{};
    for (int axis = 0; axis < grid.num_axes(); ++axis) axes[axis] = grid.size(axis);
    return axes;
  }
  static bool is_same(const Argument& argument, const Kept& kept) {
    if (argument.places == nullptr) return !kept.is_there;
    return kept.is_there && argument.bytes == kept.bytes &&
           argument.sizes == c10::IntArrayRef(kept.sizes) && *argument.places == kept.places;
  }

  Axes axes_;
  Form form_;
  c10::SmallVector<Kept, 4> arguments_{};
  int fixed_;
  bool all_fixed_;
  bool is_found_ = false;
  Strategy strategy_{};
};

// Where a choice is kept. What it leaves out makes two choices take turns, not mix.
size_t slot_of(const Form& form, c10::ArrayRef<Argument> arguments, int fixed, bool all_fixed) {
  uint64_t mark = static_cast<uint64_t>(fixed + 1) * 2 + (all_fixed ? 1 : 0);
  const auto add = [&](uint64_t value) {
    mark = (mark ^ value) * 0x9e3779b97f4a7c15;
    mark ^= mark >> 32;
  };
  add(form.contracted);
  add(form.sums);
  for (const Factors& dims : form.inputs) {
    for (const Factor factor : dims) add(static_cast<uint64_t>(factor + 1));
  }
  for (const Factors& dims : form.outputs) add(dims.size());
  for (const Argument& argument : arguments) {
    for (const int64_t size : argument.sizes) add(static_cast<uint64_t>(size));
    if (argument.places == nullptr) continue;
    for (const Place& place : *argument.places)
      add(static_cast<uint64_t>(place.kind) + 4 * static_cast<uint64_t>(place.dim));
  }
  return mark;
}

}  // namespace

bool choose(const Grid& grid, const Form& form, c10::ArrayRef<Argument> arguments, int fixed,
            Strategy& strategy, bool all_fixed) {
  // About 1 MiB a thread. Calls with lists of tensors are rare and long.
  constexpr size_t kMostKept = 256, kMostArguments = 8;
  if (arguments.size() > kMostArguments)
    return choose_anew(grid, form, arguments, fixed, strategy, all_fixed);
  thread_local std::vector<std::unique_ptr<const KeptChoice>> kept(kMostKept);
  auto& slot = kept[slot_of(form, arguments, fixed, all_fixed) % kMostKept];
  if (!slot || !slot->is_for(grid, form, arguments, fixed, all_fixed))
    slot = std::make_unique<const KeptChoice>(grid, form, arguments, fixed, all_fixed);
  return slot->give(strategy);
}

int64_t length_of(const Form& form, c10::ArrayRef<Argument> arguments, Factor factor) {
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    for (size_t dim = 0; dim < form.inputs[i].size(); ++dim) {
      if (form.inputs[i][dim] != factor || arguments[i].places == nullptr) continue;
      return arguments[i].sizes[dim] * form.input_scale(i, dim);
    }
  }
  for (const JoinedFactor& joined : form.joined) {
    if (joined.factor == factor) return joined.period;
  }
  return -1;
}

}  // namespace trireme::spmd
