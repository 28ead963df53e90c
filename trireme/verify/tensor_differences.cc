#include "trireme/verify/tensor_differences.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trireme/checkpoint/chunk/chunk.h"

namespace trireme::verify {
namespace {

using checkpoint::TensorDiff;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Difference difference_of(const checkpoint::ValueDiff& values) {
  if (values.num_not_finite > 0) return {kInfinite, kInfinite};
  return {values.max_absolute, values.max_relative};
}

bool has_fewer_bits(at::ScalarType dtype, at::ScalarType than) {
  return !c10::isFloatingType(dtype) || c10::elementSize(dtype) < c10::elementSize(than);
}

bool has_any(const checkpoint::TensorSource& source, const DifferenceOptions& options) {
  return std::ranges::any_of(source.tensors(), [&](const auto& each) {
    return !options.wanted || options.wanted(each.first);
  });
}

}  // namespace

void take_larger(TensorDifference& into, const TensorDifference& other) {
  into.difference.absolute = std::max(into.difference.absolute, other.difference.absolute);
  into.difference.relative = std::max(into.difference.relative, other.difference.relative);
  if (!into.first) into.first = other.first;
  if (into.note.empty()) into.note = other.note;
  into.is_judged = into.is_judged && other.is_judged;
  into.num_different = std::max(into.num_different, other.num_different);
}

SourceDifferences differences(const checkpoint::TensorSource& a, const checkpoint::TensorSource& b,
                              const DifferenceOptions& options) {
  SourceDifferences found;
  if (!has_any(a, options) && !has_any(b, options)) return found;
  // As much as one chunk of a checkpoint: probes of a step may be larger than any of its
  // activations was in the ranks' memory.
  const checkpoint::Diff diff =
      checkpoint::diff(a, b, {.wanted = options.wanted, .part_bytes = checkpoint::kChunkBytes});
  for (const std::string& name : diff.only_in_a) {
    found.tensors[name] = {.difference = {kInfinite, kInfinite}, .note = "only A has it"};
  }
  for (const std::string& name : diff.only_in_b) {
    found.tensors[name] = {.difference = {kInfinite, kInfinite}, .note = "only B has it"};
  }
  for (const TensorDiff& tensor : diff.tensors) {
    TensorDifference& one = found.tensors[tensor.name];
    one = {.difference = difference_of(tensor.values),
           .first = tensor.values.first,
           .num_different = tensor.values.num_different};
    if (!tensor.same_form()) {
      one = {.difference = {kInfinite, kInfinite}, .note = "shape or dtype differs"};
    } else if (options.dtype && has_fewer_bits(tensor.a.dtype, *options.dtype)) {
      one.is_judged = false;
      one.note = "kept in another precision than the run's";
    }
  }
  for (const auto& [name, tensor] : a.tensors()) {
    const bool is_wanted = !options.wanted || options.wanted(name);
    if (is_wanted && !found.tensors.contains(name)) found.same.insert(name);
  }
  return found;
}

void take_larger(SourceDifferences& into, const SourceDifferences& other) {
  for (const auto& [name, tensor] : other.tensors) take_larger(into.tensors[name], tensor);
  into.same.insert(other.same.begin(), other.same.end());
  std::erase_if(into.same, [&](const std::string& name) { return into.tensors.contains(name); });
}

Difference between(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return {};
  if (!std::isfinite(a) || !std::isfinite(b)) return {kInfinite, kInfinite};
  const double off = std::abs(a - b);
  return {off, off / std::max(std::abs(a), std::abs(b))};
}

}  // namespace trireme::verify
