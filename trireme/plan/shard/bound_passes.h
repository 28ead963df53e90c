// A lower bound of a MinSum by messages between its variables, choices near it, and the choices
// that no best solution has.
#pragma once

#include <vector>

#include "trireme/plan/shard/min_sum.h"

namespace trireme::plan {

class BoundPasses {
 public:
  // The problem must outlive it.
  explicit BoundPasses(const MinSum& problem);

  // One pass over the variables in their order and one back.
  void run();
  double bound() const { return bound_; }  // the best so far
  const std::vector<int>& choices() const { return best_; }
  double cost() const { return best_cost_; }  // of choices()
  // Marks choices with which nothing below `limit` is possible.
  void leave_out(double limit);
  // The problem with what is not left out, and of its choices the numbers here.
  MinSum remaining(std::vector<std::vector<int>>& numbers) const;

 private:
  // An edge as one of its ends sees it.
  struct End {
    int edge = 0;
    int other = 0;
    bool has_rows = false;
  };
  using Costs = std::vector<double>;

  void pass(bool is_forward);
  void round_choices();
  void improve(std::vector<int>& choices) const;
  Costs own_costs(int variable) const;  // with the messages to it
  double share(int variable) const;
  bool is_before(int a, int b) const { return is_forward_ ? a < b : a > b; }
  const Costs& to(const End& end) const { return messages_[2 * end.edge + (end.has_rows ? 0 : 1)]; }
  Costs& from(const End& end) { return messages_[2 * end.edge + (end.has_rows ? 1 : 0)]; }
  double cost(const End& end, int own, int other) const;

  const MinSum& problem_;
  std::vector<std::vector<End>> ends_;  // of each variable
  std::vector<int> num_lower_, num_higher_;
  std::vector<Costs> messages_;  // of edge e: to its rows 2 e, to its columns 2 e + 1
  std::vector<std::vector<char>> is_out_;
  bool is_forward_ = true;
  double pass_bound_ = 0;
  double bound_;
  std::vector<int> best_{};
  double best_cost_;
};

}  // namespace trireme::plan
