#include "trireme/parallel/learner/graph_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/parallel/learner/mixing_weights.h"

namespace trireme::parallel {
namespace {

size_t index(int learner) { return static_cast<size_t>(learner); }

// The learner that learner 0's value never reaches, or whose value never reaches learner 0; -1 for
// none.
int unreached(const LearnerGraph& graph, bool backwards) {
  std::vector<std::vector<int>> next(index(graph.num_learners));
  for (const GraphRound& round : graph.rounds) {
    for (const GraphEdge& edge : round) {
      next[index(backwards ? edge.to : edge.from)].push_back(backwards ? edge.from : edge.to);
    }
  }
  std::vector<bool> is_reached(index(graph.num_learners), false);
  std::vector<int> open{0};
  is_reached[0] = true;
  while (!open.empty()) {
    const int learner = open.back();
    open.pop_back();
    for (const int other : next[index(learner)]) {
      if (is_reached[index(other)]) continue;
      is_reached[index(other)] = true;
      open.push_back(other);
    }
  }
  const auto found = std::ranges::find(is_reached, false);
  return found == is_reached.end() ? -1 : static_cast<int>(found - is_reached.begin());
}

using Row = std::vector<double>;

// rows[i] is learner i's value. Only learners with an edge change.
void apply(const LearnerGraph& graph, const GraphRound& round, std::vector<Row>& rows) {
  const std::vector<double> kept = graph.kept(round);
  std::vector<std::pair<int, Row>> changed;
  const auto start = [&](int learner) {
    Row row = rows[index(learner)];
    for (double& value : row) value *= kept[index(learner)];
    changed.emplace_back(learner, std::move(row));
  };
  std::vector<bool> receives(index(graph.num_learners), false);
  for (size_t i = 0; i < round.size(); ++i) {
    const GraphEdge& edge = round[i];
    if (i == 0 || round[i - 1].to != edge.to) start(edge.to);
    receives[index(edge.to)] = true;
    Row& row = changed.back().second;
    const Row& from = rows[index(edge.from)];
    for (size_t j = 0; j < row.size(); ++j) row[j] += edge.weight * from[j];
  }
  for (int learner = 0; learner < graph.num_learners; ++learner) {
    // It gives without receiving.
    if (!receives[index(learner)] && kept[index(learner)] != 1) start(learner);
  }
  for (auto& [learner, row] : changed) rows[index(learner)] = std::move(row);
}

double error_of(const std::vector<Row>& rows, const LearnerWeights& weights) {
  const double mean = 1.0 / static_cast<double>(rows.size());
  double error = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const double value : rows[i]) {
      error = std::max(error, std::abs(value / weights[i] - mean));
    }
  }
  return error;
}

// The mean logarithmic growth of a disagreement, which is that of the largest eigenvalue but one:
// a mixing matrix of either kind maps vectors of sum 0 to vectors of sum 0. Growth is averaged over
// many periods as complex eigenvalues turn the vector.
double contraction_of(const LearnerGraph& graph) {
  // Long periods converge in fewer of them.
  constexpr int kMostRounds = 1 << 15, kMostPeriods = 200;
  const int half = std::clamp(kMostRounds / 2 / graph.period(), 8, kMostPeriods);
  const RandomKey key = random_key(0, "learner graph");
  std::vector<Row> rows;
  for (int i = 0; i < graph.num_learners; ++i) {
    rows.push_back({random_uniform(key, static_cast<uint64_t>(i)) - 0.5});
  }
  const auto normalise = [&] {
    double sum = 0, squares = 0;
    for (const Row& row : rows) sum += row[0];
    for (Row& row : rows) row[0] -= sum / static_cast<double>(rows.size());
    for (const Row& row : rows) squares += row[0] * row[0];
    const double norm = std::sqrt(squares);
    for (Row& row : rows) row[0] /= norm > 0 ? norm : 1;
    return norm;
  };
  normalise();
  double growth = 0;
  for (int period = 0; period < 2 * half; ++period) {
    for (const GraphRound& round : graph.rounds) apply(graph, round, rows);
    const double norm = normalise();
    if (norm <= rounding_of(graph, graph.period())) return 0;
    if (period >= half) growth += std::log(norm) / half;
  }
  return std::exp(growth);
}

}  // namespace

double rounding_of(const LearnerGraph& graph, int num_rounds) {
  size_t most = 0;
  for (const GraphRound& round : graph.rounds) {
    size_t degree = 0;
    for (size_t i = 0; i < round.size(); ++i) {
      degree = i > 0 && round[i - 1].to == round[i].to ? degree + 1 : 1;
      most = std::max(most, degree);
    }
  }
  // Weights are rounded too, as is the sum that 1 - it is kept.
  return static_cast<double>(num_rounds + 1) * static_cast<double>(2 * most + 3) *
         std::numeric_limits<double>::epsilon();
}

std::vector<double> errors_by_round(const LearnerGraph& graph, int num_rounds) {
  std::vector<Row> rows(index(graph.num_learners), Row(index(graph.num_learners), 0));
  for (size_t i = 0; i < rows.size(); ++i) rows[i][i] = 1;
  LearnerWeights weights = even_weights(graph);
  std::vector<double> errors{error_of(rows, weights)};
  for (int t = 0; t < num_rounds; ++t) {
    apply(graph, graph.round(t), rows);
    advance(weights, graph, t);
    errors.push_back(error_of(rows, weights));
  }
  return errors;
}

GraphReport report_on(const LearnerGraph& graph) {
  GraphReport report;
  report.is_connected = unreached(graph, false) < 0 && unreached(graph, true) < 0;
  report.errors = errors_by_round(graph, graph.period());
  LearnerWeights weights = even_weights(graph);
  for (int t = 0; t <= graph.period() && report.exact_after < 0; ++t) {
    // A small push-sum weight magnifies the rounding of what it divides.
    const double rounding = rounding_of(graph, t) / *std::ranges::min_element(weights);
    if (report.errors[index(t)] <= rounding) report.exact_after = t;
    advance(weights, graph, t);
  }
  report.contraction = report.exact_after >= 0 ? 0
                       : report.is_connected   ? contraction_of(graph)
                                               : 1;
  int64_t sends = 0;
  for (const GraphRound& round : graph.rounds) {
    std::vector<int64_t> sent(index(graph.num_learners), 0);
    for (const GraphEdge& edge : round) ++sent[index(edge.from)];
    report.most_sends = std::max(report.most_sends, *std::ranges::max_element(sent));
    sends += static_cast<int64_t>(round.size());
  }
  report.mean_sends = static_cast<double>(sends) / graph.num_learners / graph.period();
  return report;
}

void check_connected(const LearnerGraph& graph) {
  for (const bool backwards : {false, true}) {
    const int learner = unreached(graph, backwards);
    TRIREME_CHECK(learner < 0, graph.name, " is not connected: the value of learner ",
                  backwards ? learner : 0, " never reaches learner ", backwards ? 0 : learner,
                  "; expected a way from every learner to every other one in some rounds");
  }
}

int64_t sent_bytes(const GraphRound& round, int learner, int64_t tensor_bytes) {
  return tensor_bytes * std::ranges::count(round, learner, &GraphEdge::from);
}

int64_t received_bytes(const GraphRound& round, int learner, int64_t tensor_bytes) {
  return tensor_bytes * std::ranges::count(round, learner, &GraphEdge::to);
}

}  // namespace trireme::parallel
