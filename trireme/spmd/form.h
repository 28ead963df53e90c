// What an operator does to the dimensions of its tensors, as data. From this strategy.h finds out
// how the axes of a grid may split them.
#pragma once

#include <cstdint>

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

namespace trireme::spmd {

// A dimension's factor, 0 to kMostFactors - 1: dimensions with the same factor are split together.
using Factor = int8_t;
inline constexpr Factor kWholeDim = -1;  // no axis may split this dimension
inline constexpr int kMostFactors = 32;

using Factors = c10::SmallVector<Factor, 6>;  // by dimension
using TensorSet = uint32_t;                   // bit i: tensor argument i

// A dimension that several were joined to has, beside its own factor, those of all but the first of
// them: a split of such a factor is periodic there.
struct JoinedFactor {
  bool is_output = false;  // of the result, else of the argument
  int dim = 0;
  Factor factor = 0;
  int64_t period = 0;  // positions of the factor

  bool operator==(const JoinedFactor&) const = default;
};

struct Form {
  // By tensor argument, those that are lists' elements and undefined ones among them.
  c10::SmallVector<Factors, 4> inputs{};
  // By result. A list of tensors is one result: its elements are alike.
  c10::SmallVector<Factors, 3> outputs{};
  // Bit f: where an axis splits factor f, results without it are partial sums.
  uint32_t contracted = 0;
  // Bit i: result i is such a sum; the others are the same on every rank.
  TensorSet sums = ~TensorSet{0};
  // Arguments that are added to those sums: there they are partial too.
  TensorSet added = 0;
  // Sets of arguments in which the operator is linear: when these are partial sums and all others
  // replicated, the results are partial sums.
  c10::SmallVector<TensorSet, 3> linear{};
  // Positions in a dimension times its scale are positions in its factor: a view that joins or
  // parts dimensions, heads that share keys. By tensor and dimension; missing ones are 1.
  using Scales = c10::SmallVector<int64_t, 6>;
  c10::SmallVector<Scales, 2> input_scales{};
  c10::SmallVector<Scales, 2> output_scales{};
  // Of a view: the result's strides as those of the whole, in a memory of the argument's strides.
  c10::SmallVector<int64_t, 6> strides{};
  // The result lies in memory in the order of the first argument with as many dimensions.
  bool keeps_order = false;
  // Of a view, which has one argument and one result.
  c10::SmallVector<JoinedFactor, 2> joined{};
  // Splits of this factor lie at multiples of `granule`: groups of channels.
  Factor granular = kWholeDim;
  int64_t granule = 1;
  // Bit f: where an axis splits factor f, the rule's `run` sums over its ranks by itself, in
  // `num_exchanges` operations that take `exchanged_bytes` of each rank together.
  uint32_t exchanged = 0;
  int num_exchanges = 0;
  double exchanged_bytes = 0;

  int64_t input_scale(size_t input, size_t dim) const { return scale_in(input_scales, input, dim); }
  int64_t output_scale(size_t output, size_t dim) const {
    return scale_in(output_scales, output, dim);
  }
  bool operator==(const Form&) const = default;
  bool has_scales() const { return !input_scales.empty() || !output_scales.empty(); }

 private:
  static int64_t scale_in(c10::ArrayRef<Scales> scales, size_t tensor, size_t dim) {
    return tensor < scales.size() && dim < scales[tensor].size() ? scales[tensor][dim] : 1;
  }
};

// Factors first, first + 1 ... of a tensor of `dims` dimensions.
inline Factors factors(int64_t dims, int first = 0) {
  Factors result(dims);
  for (int64_t dim = 0; dim < dims; ++dim) result[dim] = static_cast<Factor>(first + dim);
  return result;
}
inline Factors whole_dims(int64_t dims) { return Factors(dims, kWholeDim); }

}  // namespace trireme::spmd
