#include "trireme/plan/shard/table_elimination.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace trireme::plan {
namespace {

// Costs of the choices of several variables: the last one's vary fastest.
struct Costs {
  std::vector<int> variables{};
  std::vector<double> values{};
};

// The order in which variables go: next the one with the smallest table.
class Order {
 public:
  explicit Order(const MinSum& problem) : neighbours_(problem.variables.size()) {
    for (const int table : problem.variables) choices_.push_back(problem.tables[table].rows);
    for (const MinSum::Edge& edge : problem.edges) {
      neighbours_[edge.a].insert(edge.b);
      neighbours_[edge.b].insert(edge.a);
    }
    sizes_.resize(choices_.size());
    for (int v = 0; v < static_cast<int>(choices_.size()); ++v) queue_.insert({size(v), v});
    for (const auto& [entries, v] : queue_) sizes_[v] = entries;
  }

  bool has_next() const { return !queue_.empty(); }
  int next() const { return queue_.begin()->second; }
  double next_entries() const { return queue_.begin()->first; }
  const std::set<int>& neighbours(int v) const { return neighbours_[v]; }
  int choices(int v) const { return choices_[v]; }
  void take(int v) {
    queue_.erase({sizes_[v], v});
    const std::set<int> around = std::move(neighbours_[v]);
    for (const int a : around) {
      neighbours_[a].erase(v);
      for (const int b : around) {
        if (b != a) neighbours_[a].insert(b);
      }
    }
    for (const int a : around) {
      queue_.erase({sizes_[a], a});
      sizes_[a] = size(a);
      queue_.insert({sizes_[a], a});
    }
  }

 private:
  double size(int v) const {
    double entries = choices_[v];
    for (const int other : neighbours_[v]) entries *= choices_[other];
    return entries;
  }

  std::vector<int> choices_{};
  std::vector<std::set<int>> neighbours_;
  std::vector<double> sizes_{};
  std::set<std::pair<double, int>> queue_{};
};

// Adds `part` to `sum`, whose variables are `all`, the last fastest.
void add(const Costs& part, const std::vector<int>& all, const Order& order,
         std::vector<double>& sum) {
  std::vector<size_t> strides(all.size(), 0);
  size_t stride = 1;
  for (size_t i = part.variables.size(); i-- > 0;) {
    const auto at = std::ranges::find(all, part.variables[i]) - all.begin();
    strides[static_cast<size_t>(at)] = stride;
    stride *= static_cast<size_t>(order.choices(part.variables[i]));
  }
  std::vector<int> index(all.size(), 0);
  size_t from = 0;
  for (double& each : sum) {
    each += part.values[from];
    for (size_t i = all.size(); i-- > 0;) {
      from += strides[i];
      if (++index[i] < order.choices(all[i])) break;
      from -= strides[i] * static_cast<size_t>(index[i]);
      index[i] = 0;
    }
  }
}

struct Step {
  int variable = 0;
  std::vector<int> others{};
  std::vector<int> best{};
};

class Elimination {
 public:
  explicit Elimination(const MinSum& problem) : order_(problem), uses_(problem.variables.size()) {
    for (size_t v = 0; v < problem.variables.size(); ++v)
      keep({{static_cast<int>(v)}, problem.tables[problem.variables[v]].costs});
    for (const MinSum::Edge& edge : problem.edges)
      keep({{edge.a, edge.b}, problem.tables[edge.table].costs});
  }

  std::vector<int> run() {
    while (order_.has_next()) take(order_.next());
    std::vector<int> choices(uses_.size(), 0);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      size_t at = 0;
      for (const int other : step->others)
        at = at * static_cast<size_t>(order_.choices(other)) + static_cast<size_t>(choices[other]);
      choices[step->variable] = step->best[at];
    }
    return choices;
  }

 private:
  void keep(Costs costs) {
    for (const int v : costs.variables) uses_[v].insert(static_cast<int>(costs_.size()));
    costs_.push_back(std::move(costs));
  }

  void take(int v) {
    Step step{.variable = v, .others = {order_.neighbours(v).begin(), order_.neighbours(v).end()}};
    std::vector<int> all = step.others;
    all.push_back(v);
    const auto own = static_cast<size_t>(order_.choices(v));
    std::vector<double> sum(static_cast<size_t>(order_.next_entries()), 0);
    for (const int used : std::set<int>(uses_[v])) {
      add(costs_[used], all, order_, sum);
      for (const int other : costs_[used].variables) uses_[other].erase(used);
      costs_[used] = {};
    }
    Costs rest{.variables = step.others};
    for (size_t row = 0; row < sum.size(); row += own) {
      const auto first = sum.begin() + static_cast<int64_t>(row);
      const auto least = std::min_element(first, first + static_cast<int64_t>(own));
      rest.values.push_back(*least);
      step.best.push_back(static_cast<int>(least - first));
    }
    if (!rest.variables.empty()) keep(std::move(rest));
    order_.take(v);
    steps_.push_back(std::move(step));
  }

  Order order_;
  std::vector<Costs> costs_{};
  std::vector<std::set<int>> uses_;  // of each variable: costs
  std::vector<Step> steps_{};
};

}  // namespace

double elimination_entries(const MinSum& problem) {
  Order order(problem);
  double entries = 0;
  while (order.has_next()) {
    entries += order.next_entries();
    if (entries > 1e15) return entries;
    order.take(order.next());
  }
  return entries;
}

std::optional<std::vector<int>> eliminate(const MinSum& problem, double most_entries) {
  if (elimination_entries(problem) > most_entries) return std::nullopt;
  return Elimination(problem).run();
}

}  // namespace trireme::plan
