// What pairs of runs differ by, tensor by tensor: the numbers that a verdict needs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <c10/core/ScalarType.h>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/offline/tensor_diff.h"
#include "trireme/verify/precision.h"

namespace trireme::verify {

struct TensorDifference {
  Difference difference{};
  std::optional<checkpoint::ValueDiff::First> first{};
  std::string note{};
  bool is_judged = true;      // false: its precision is not the run's
  int64_t num_different = 0;  // elements
};

// The larger of both, and what either says.
void take_larger(TensorDifference& into, const TensorDifference& other);

struct SourceDifferences {
  std::map<std::string, TensorDifference> tensors{};  // by name, those with a difference
  std::set<std::string> same{};                       // with equal bits
};

struct DifferenceOptions {
  // Tensors of fewer bits are not judged. Unset: all are.
  std::optional<at::ScalarType> dtype{};
  // The names to compare; empty: all.
  std::function<bool(const std::string& name)> wanted{};
};

// Memory: 1 MiB of a tensor on each side, and a chunk of a checkpoint
// Throws: CheckpointError when a source is damaged
SourceDifferences differences(const checkpoint::TensorSource& a, const checkpoint::TensorSource& b,
                              const DifferenceOptions& options = {});
// Adds the larger of each tensor's differences.
void take_larger(SourceDifferences& into, const SourceDifferences& other);

// Of numbers.
Difference between(double a, double b);

}  // namespace trireme::verify
