// Eliminates the variables of a MinSum that have at most two neighbours, each kind of elimination
// once.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "trireme/plan/shard/min_sum.h"

namespace trireme::plan {

class FoldedElimination {
 public:
  explicit FoldedElimination(const MinSum& problem);

  // What is left: its variables are kept_variables() of the whole, in their order.
  MinSum rest() const;
  const std::vector<int>& kept_variables() const { return kept_; }
  double constant() const { return constant_; }  // the cost of what is gone
  int num_distinct() const { return static_cast<int>(results_.size()); }
  // All choices, from those of the rest.
  std::vector<int> complete(const std::vector<int>& of_rest) const;

 private:
  using Key = std::vector<int>;
  // A table as one of its variables sees it: `turned` when that one has the columns.
  struct Side {
    int table = 0;
    bool turned = false;
  };
  struct Result {
    int table = -1;
    std::vector<int> best{};  // [rows, columns of the table]: the eliminated one's choice
  };
  struct Step {
    int variable = 0;
    int first = -1, second = -1;  // neighbours, rows and columns of the result
    const Result* result = nullptr;
  };

  int choices(int variable) const { return tables_[variables_[variable]].rows; }
  double work_of(int variable) const;
  void eliminate(int variable);
  const Result& result_of(int own, const std::vector<Side>& sides);
  Result compute(int own, const std::vector<Side>& sides) const;
  int sum_of(int a, const Side& b);
  void connect(int a, int b, int table);
  void queue(int variable);
  double cost(const Side& side, int own, int other) const;

  std::vector<MinSum::Table> tables_;
  std::vector<int> variables_;
  std::vector<std::map<int, Side>> neighbours_;  // of each variable; empty once it is gone
  std::vector<char> is_gone_;
  // A variable's turn comes behind those that no elimination has touched yet, so that equal blocks
  // stay equal: they shrink together. Then by work, then by number.
  std::set<std::tuple<int, double, int>> queue_{};
  std::vector<int> rounds_;     // of each variable: eliminations that led to its tables
  std::vector<double> queued_;  // the work under which a variable is queued; -1: it is not
  std::vector<int> queued_round_;
  std::map<Key, Result> results_{};
  std::map<Key, int> sums_{};
  std::vector<Step> steps_{};
  std::vector<int> kept_{};
  double constant_ = 0;
};

}  // namespace trireme::plan
