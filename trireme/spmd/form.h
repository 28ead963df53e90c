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

struct Form {
  // By tensor argument, those that are lists' elements and undefined ones among them.
  c10::SmallVector<Factors, 4> inputs{};
  // By result. A list of tensors is one result: its elements are alike.
  c10::SmallVector<Factors, 3> outputs{};
  // Bit f: where an axis splits factor f, results without it are partial sums.
  uint32_t contracted = 0;
  // Arguments that are added to those sums: there they are partial too.
  TensorSet added = 0;
  // Sets of arguments in which the operator is linear: when these are partial sums and all others
  // replicated, the results are partial sums.
  c10::SmallVector<TensorSet, 3> linear{};
  // Positions in a dimension times its scale are positions in its factor: a view that joins or
  // parts dimensions. Empty: all are 1.
  c10::SmallVector<c10::SmallVector<int64_t, 6>, 2> input_scales{};
  c10::SmallVector<int64_t, 6> output_scales{};

  int64_t input_scale(size_t input, size_t dim) const {
    return input < input_scales.size() ? input_scales[input][dim] : 1;
  }
  int64_t output_scale(size_t dim) const {
    return dim < output_scales.size() ? output_scales[dim] : 1;
  }
  bool operator==(const Form&) const = default;
};

// Factors first, first + 1 ... of a tensor of `dims` dimensions.
inline Factors factors(int64_t dims, int first = 0) {
  Factors result(dims);
  for (int64_t dim = 0; dim < dims; ++dim) result[dim] = static_cast<Factor>(first + dim);
  return result;
}
inline Factors whole_dims(int64_t dims) { return Factors(dims, kWholeDim); }

}  // namespace trireme::spmd
