// A traced step as a MinSum: which strategy each operator and which split each parameter takes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/plan/device/cluster.h"
#include "trireme/plan/shard/min_sum.h"
#include "trireme/plan/shard/strategies.h"

namespace trireme::plan {

struct ShardOptions {
  Cluster cluster{};
  ShardAxes axes{};  // one or two
  // Of a rank's parameters, gradients and optimizer states, per element of a parameter.
  double state_bytes = 16;
  double memory_bytes = 0;       // that states and kept activations may take on a rank; 0: any
  std::map<int, Split> fixed{};  // parameters (values) whose splits are given
};

class ShardProblem {
 public:
  // An operator, or a parameter, as it appears once or often.
  struct Kind {
    int node = -1;                           // -1: a parameter
    int value = -1;                          // of a parameter
    std::vector<NodeStrategy> strategies{};  // a parameter has one output
    std::vector<double> seconds{};           // of each
    std::vector<double> kept_bytes{};        // of each: states, or activations for backward
  };
  // A tensor that one variable makes and another uses.
  struct Use {
    int maker = 0;   // variables
    int output = 0;  // of the maker
    int user = 0;
    int input = 0;  // of the user; of a parameter that uses its gradient: 0
    int value = 0;
  };

  // Throws: ConfigError for other than one or two axes
  ShardProblem(const spmd::Graph& graph, const ShardOptions& options);

  const spmd::Graph& graph() const { return graph_; }
  const ShardOptions& options() const { return options_; }
  // Parameters first, then the nodes in their order.
  int num_variables() const { return static_cast<int>(kinds_of_.size()); }
  int num_parameters() const { return static_cast<int>(parameters_.size()); }
  int parameter(int variable) const { return parameters_[static_cast<size_t>(variable)]; }
  int node(int variable) const { return variable - num_parameters(); }
  const Kind& kind(int variable) const { return kinds_[kinds_of_[variable]]; }
  int num_kinds() const { return static_cast<int>(kinds_.size()); }
  const std::vector<Use>& uses() const { return uses_; }
  // The split in which a user needs a tensor; of a gradient that of its parameter.
  const Split& needed(const Use& use, int choice) const;
  const Split& made(const Use& use, int choice) const {
    return kind(use.maker).strategies[choice].outputs[use.output];
  }

  // second_per_byte: what a kept byte costs
  MinSum min_sum(double second_per_byte) const;
  double seconds(const std::vector<int>& choices) const { return at_no_price_.cost_of(choices); }
  double kept_bytes(const std::vector<int>& choices) const;
  double least_bytes() const;  // at any choices

 private:
  void add_parameters();
  void add_nodes();
  void add_gradients();
  void add_use(int value, int user, int input);
  int kind_of_node(int node);
  void mark_kept();
  void make_tables();

  const spmd::Graph& graph_;
  const ShardOptions& options_;
  std::vector<int> parameters_{};   // their values
  std::vector<int> variable_of_{};  // of each value; -1: given
  std::vector<int> output_of_{};    // of each value: its place among its maker's outputs
  std::vector<char> is_kept_{};     // of each value: backward reads it
  std::vector<Kind> kinds_{};
  std::vector<int> kinds_of_{};
  std::vector<Use> uses_{};
  MinSum at_no_price_{};
};

}  // namespace trireme::plan
