// One table with an open vocabulary, written plainly: a map from ids to rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "trireme/base/random/random.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/open/open_key.h"

namespace trireme::parallel {

class OpenOracle {
 public:
  struct Row {
    std::vector<double> w, first, second;
    int64_t last_use = 0;
    int64_t uses = 0;
    bool is_row = false;
    std::vector<int64_t> use_steps;  // since it is a row
  };
  OpenOracle(const TableConfig& table, const EmbeddingOptions& options)
      : table_(table), options_(options) {}

  std::vector<double> read(int64_t id, int64_t num_steps) {
    drop(num_steps);
    const auto found = rows_.find(id);
    return found != rows_.end() && found->second.is_row ? found->second.w : initial(id);
  }

  void step(const std::map<int64_t, std::vector<double>>& gradients, int64_t step) {
    drop(step - 1);
    for (const auto& [id, gradient] : gradients) {
      Row& row = rows_[id];
      row.last_use = step;
      ++row.uses;
      row.use_steps.push_back(step);
      if (row.is_row || row.uses < table_.open_min_uses) continue;
      const double sum = options_.optimizer.initial_accumulator;
      const bool is_adam = options_.optimizer.rule == RowRule::kAdam ||
                           options_.optimizer.rule == RowRule::kLazyAdam;
      row = {.w = initial(id),
             .first = std::vector<double>(gradient.size(), is_adam ? 0 : sum),
             .second = std::vector<double>(gradient.size(), 0),
             .last_use = step,
             .uses = row.uses,
             .is_row = true,
             .use_steps = {step}};
    }
    for (auto& [id, row] : rows_) {
      if (!row.is_row) continue;
      const auto used = gradients.find(id);
      const bool is_used = used != gradients.end();
      if (!is_used && options_.optimizer.rule != RowRule::kAdam) continue;
      update(row, is_used ? used->second : std::vector<double>(row.w.size(), 0), step);
    }
    drop(step);
    evict(step);
  }

  const std::map<int64_t, Row>& rows() const { return rows_; }

  // Each use of a row counts half as much after every open_halve_steps steps.
  double uses(const Row& row, int64_t num_steps) const {
    double sum = 0;
    for (const int64_t step : row.use_steps) {
      double use = 1;
      for (int64_t k = step + 1; k <= num_steps && table_.open_halve_steps > 0; ++k) {
        if (k % table_.open_halve_steps == 0) use /= 2;
      }
      sum += use;
    }
    return sum;
  }

 private:
  std::vector<double> initial(int64_t id) const {
    const RandomKey key{random_key(options_.seed, table_.name + ".weight").value ^
                        static_cast<uint64_t>(open_key(id))};
    std::vector<double> row;
    for (uint64_t i = 0; i < static_cast<uint64_t>(table_.width); ++i) {
      row.push_back(0.01 * (2 * random_uniform(key, i) - 1));
    }
    return row;
  }
  void drop(int64_t num_steps) {
    std::erase_if(rows_, [&](const auto& each) {
      return table_.open_expire_steps > 0 &&
             each.second.last_use <= num_steps - table_.open_expire_steps;
    });
  }
  // The rows with the fewest uses if they count, then those whose last use is longest ago, of one
  // step those with the smallest keys.
  void evict(int64_t num_steps) {
    const bool counts = table_.open_when_full == FullTable::kEvictRarest;
    std::set<std::tuple<double, int64_t, int64_t, int64_t>> order;
    for (const auto& [id, row] : rows_) {
      if (!row.is_row) continue;
      order.insert({counts ? uses(row, num_steps) : 0, row.last_use, open_key(id), id});
    }
    while (table_.open_max_rows > 0 && std::ssize(order) > table_.open_max_rows) {
      rows_.erase(std::get<3>(*order.begin()));
      order.erase(order.begin());
    }
  }
  void update(Row& row, const std::vector<double>& g, int64_t step) const {
    const RowOptimizerConfig& o = options_.optimizer;
    const auto k = static_cast<double>(step);
    double mean = 0;
    for (const double each : g) mean += each * each / static_cast<double>(g.size());
    for (size_t i = 0; i < g.size(); ++i) {
      double& w = row.w[i];
      double& a = row.first[i];
      double& v = row.second[i];
      switch (o.rule) {
        case RowRule::kSgd: w -= o.learning_rate * g[i]; break;
        case RowRule::kAdaGrad:
        case RowRule::kRowWiseAdaGrad:
          a += o.rule == RowRule::kAdaGrad ? g[i] * g[i] : mean;
          w -= o.learning_rate * g[i] / (std::sqrt(a) + o.epsilon);
          break;
        case RowRule::kLazyAdam:
        case RowRule::kAdam:
          a = o.beta1 * a + (1 - o.beta1) * g[i];
          v = o.beta2 * v + (1 - o.beta2) * g[i] * g[i];
          w -= o.learning_rate * a / (1 - std::pow(o.beta1, k)) /
               (std::sqrt(v / (1 - std::pow(o.beta2, k))) + o.epsilon);
      }
    }
  }

  TableConfig table_;
  EmbeddingOptions options_;
  std::map<int64_t, Row> rows_;
};

}  // namespace trireme::parallel
