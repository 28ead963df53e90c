// Compares two sets of named tensors: which differ, where first, and by how much.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/offline/saved_tensors.h"

namespace trireme::checkpoint {

// Two elements differ when their bits do, so a NaN equals the same NaN and -0 differs from 0.
struct ValueDiff {
  int64_t num_elements = 0;
  int64_t num_different = 0;
  int64_t num_beyond = 0;      // of those, beyond the tolerance
  int64_t num_not_finite = 0;  // of those, NaN or infinite on one side: always beyond, and in
                               // none of the numbers below
  double max_absolute = 0;     // largest |a - b|
  double max_relative = 0;     // max_absolute, relative to the largest finite |value| of both
  std::optional<uint64_t> max_ulp{};  // largest number of representable values from a to b; empty
                                      // for integers
  std::optional<double> cosine{};  // of the angle between a and b; empty for integers and for zeros
  // The first element beyond the tolerance, in row-major order.
  struct First {
    std::vector<int64_t> index;
    std::string a;  // as decimal text that reads back as the same number
    std::string b;
    bool operator==(const First&) const = default;
    // "first at [0, 3]: 1.5 in A, 2 in B"
    std::string text() const;
  };
  std::optional<First> first{};

  bool operator==(const ValueDiff&) const = default;
};

// tolerance: allowed |a - b|, relative to the largest finite |value| of both tensors; 0: the bits
// must be the same.
// Throws: ConfigError when dtypes or shapes differ, or for a dtype that checkpoints lack
ValueDiff compare_values(const at::Tensor& a, const at::Tensor& b, double tolerance = 0);

struct TensorDiff {
  std::string name{};
  SourceTensor a{};
  SourceTensor b{};
  ValueDiff values{};  // empty when dtype or shape differ

  bool same_form() const { return a.dtype == b.dtype && a.shape == b.shape; }
  // Whether it counts as a difference, given the tolerance.
  bool is_beyond() const { return !same_form() || values.num_beyond > 0; }
};

struct DiffOptions {
  double tolerance = 0;  // as for compare_values()
  // The names to compare; empty: all.
  std::function<bool(const std::string& name)> wanted{};
  // Of a tensor on each side that are in memory at once.
  uint64_t part_bytes = uint64_t{16} << 20;
  OnProgress on_progress{};  // in bytes of one side
};

struct Diff {
  int64_t num_compared = 0;  // tensors on both sides
  int64_t num_bytes = 0;     // of those, on one side
  std::vector<std::string> only_in_a{};
  std::vector<std::string> only_in_b{};
  std::vector<TensorDiff> tensors{};  // those that differ at all, by name

  int64_t num_beyond() const;
  // Whether both have the same names and no tensor differs by more than the tolerance.
  bool is_same() const { return only_in_a.empty() && only_in_b.empty() && num_beyond() == 0; }
};

// Memory: options.part_bytes of a tensor on each side
// Throws: ConfigError when `wanted` takes no tensor; CheckpointError when a source is damaged
Diff diff(const TensorSource& a, const TensorSource& b, const DiffOptions& options = {});

}  // namespace trireme::checkpoint
