// Forward and backward of a module as plain data: what the planner of plan/shard reads. It has no
// tensor and no rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/spmd/form.h"

namespace trireme::spmd {

struct GraphValue {
  enum class Kind {
    kParameter,
    kGiven,  // an input of the step, or a constant: each rank may have any part of it
    kResult,
  };
  Kind kind = Kind::kGiven;
  std::string name{};  // of kParameter: "layers.0.weight"; of an input with a name
  std::vector<std::string> more_names{};  // of a parameter that has several
  std::vector<int64_t> sizes{};
  int64_t itemsize = 4;
  bool is_floating = true;
  int producer = -1;  // of kResult: its node

  double numel() const;
  double bytes() const { return numel() * static_cast<double>(itemsize); }
  bool operator==(const GraphValue&) const = default;
};

// How long an operator takes, see plan/shard.
enum class WorkKind {
  kView,      // none
  kElements,  // reads its arguments and writes its results
  kLookUp,    // the same, but of the first argument only as much as it writes
  kProduct,   // of the two last tensor arguments
  kConvolution,
  kConvolutionBackward,
  kAttention,
  kAttentionBackward,
};

// The name of a node that is no operator: a rule sums its argument over the ranks.
inline constexpr const char* kSummed = "sum over ranks";

struct GraphNode {
  std::string name{};    // "aten::mm"
  std::string module{};  // path of the module that ran it; "": the root
  bool is_backward = false;
  bool has_rule = true;  // false: every rank computes the whole
  WorkKind work = WorkKind::kElements;
  bool is_causal = false;           // of attention
  int64_t number = -1;              // in the step, see spmd/splits.h; -1: it has none
  int written = -1;                 // the input that it writes, and that stays where it is
  bool is_like_first = false;       // its result lies as its first tensor, whatever a plan says
  std::vector<int> inputs{};        // values, in the order of form.inputs; -1: undefined
  std::vector<int> outputs{};       // values; elements of lists one by one
  std::vector<int> output_forms{};  // of each output: its place in form.outputs
  Form form{};

  bool operator==(const GraphNode&) const = default;
};

struct Graph {
  struct Gradient {
    int parameter = 0;  // values
    int gradient = 0;
    bool operator==(const Gradient&) const = default;
  };
  std::vector<GraphValue> values{};
  std::vector<GraphNode> nodes{};  // in the order in which they ran
  std::vector<Gradient> gradients{};
  int64_t num_forward = 0, num_backward = 0;  // numbered operators, and the marks of their names
  uint64_t forward_mark = 0, backward_mark = 0;

  bool operator==(const Graph&) const = default;
};

// "" for equal graphs; otherwise the first operator, value or gradient in which they differ.
std::string first_difference(const Graph& a, const Graph& b);
// The operators without a rule, sorted, each once.
std::vector<std::string> without_rule(const Graph& graph);

}  // namespace trireme::spmd
