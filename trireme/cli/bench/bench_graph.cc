#include "trireme/cli/bench/bench_graph.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/parallel/learner/graph_file.h"
#include "trireme/parallel/learner/named_graph.h"

namespace trireme::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr int kMostInMatrix = 12;  // learners
constexpr int kMostShown = 64;
constexpr int kMostRoundsShown = 16;
constexpr int kNamedLearners = 4;

using parallel::GraphEdge;
using parallel::GraphRound;
using parallel::LearnerGraph;

std::vector<double> row_of(const LearnerGraph& graph, const GraphRound& round, int learner) {
  std::vector<double> row(static_cast<size_t>(graph.num_learners), 0);
  row[static_cast<size_t>(learner)] = graph.kept(round)[static_cast<size_t>(learner)];
  for (const GraphEdge& edge : round) {
    if (edge.to == learner) row[static_cast<size_t>(edge.from)] = edge.weight;
  }
  return row;
}

std::string matrix_text(const LearnerGraph& graph, const GraphRound& round) {
  std::string text = "    ";
  for (int from = 0; from < graph.num_learners; ++from) text += format("%6d", from);
  text += '\n';
  for (int to = 0; to < graph.num_learners; ++to) {
    text += format("%4d", to);
    for (const double weight : row_of(graph, round, to)) {
      text += weight == 0 ? format("%6s", ".") : format("%6.3f", weight);
    }
    text += '\n';
  }
  return text;
}

std::string lists_text(const LearnerGraph& graph, const GraphRound& round) {
  const std::vector<double> kept = graph.kept(round);
  std::string text;
  for (int to = 0; to < graph.num_learners; ++to) {
    std::string line = format("%4d    keeps %.3f", to, kept[static_cast<size_t>(to)]);
    for (const GraphEdge& edge : round) {
      if (edge.to == to) line += format(", %.3f of %d", edge.weight, edge.from);
    }
    text += wrapped_line(line, kColumns) + '\n';
  }
  return text;
}

std::string rounds_text(const LearnerGraph& graph) {
  if (graph.num_learners > kMostShown) {
    return concat("weights of more than ", kMostShown, " learners are in --json only\n");
  }
  std::string text;
  const int shown = std::min(graph.period(), kMostRoundsShown);
  for (int i = 0; i < shown; ++i) {
    text += concat("round ", i, " of ", graph.period(), ": a row for each learner, and what it ",
                   "takes of whom\n");
    text += graph.num_learners <= kMostInMatrix ? matrix_text(graph, graph.round(i))
                                                : lists_text(graph, graph.round(i));
  }
  if (shown < graph.period()) text += concat("and ", graph.period() - shown, " more rounds\n");
  return text;
}

std::string speed_of(const GraphFindings& findings) {
  const parallel::GraphReport& report = findings.report;
  const int period = findings.graph.period();
  if (!report.is_connected) return "not connected: learners never agree";
  if (report.exact_after >= 0) return concat("after ", report.exact_after, " rounds");
  return format("never; %d round%s shrink%s a disagreement to %.4g of it, gap %.4g", period,
                period == 1 ? "" : "s", period == 1 ? "s" : "", report.contraction,
                1 - report.contraction);
}

}  // namespace

GraphFindings check_graph(const GraphCase& what) {
  GraphFindings findings;
  if (parallel::is_graph_file(what.graph) && what.num_learners == 0) {
    findings.graph = parallel::read_graph(what.graph);
  } else {
    const int n = what.num_learners > 0 ? what.num_learners : kNamedLearners;
    TRIREME_CHECK(what.num_hosts >= 1 && n % what.num_hosts == 0, "--hosts is ", what.num_hosts,
                  ", which does not divide the ", n, " learners; choose a divisor");
    std::vector<int> hosts;
    for (int i = 0; i < n; ++i) hosts.push_back(i / (n / what.num_hosts));
    findings.graph = parallel::make_named_graph(what.graph, hosts);
  }
  findings.report = parallel::report_on(findings.graph);
  findings.errors = parallel::errors_by_round(findings.graph, what.num_rounds);
  return findings;
}

std::string show_graph(const GraphFindings& findings) {
  const LearnerGraph& graph = findings.graph;
  const bool is_doubly = graph.kind == parallel::MixingKind::kDoublyStochastic;
  std::string text = wrapped_line("graph   " + printable(graph.name), kColumns) + '\n';
  text += concat("kind    ",
                 is_doubly ? "doubly stochastic: for gossip, gradient-tracking, push-sum"
                           : "column stochastic: for push-sum only",
                 '\n');
  text += wrapped_line("exact   " + speed_of(findings), kColumns) + '\n';
  text += format("sends   %lld at most, %.3g on average, per learner and round\n\n",
                 static_cast<long long>(findings.report.most_sends), findings.report.mean_sends);
  text += rounds_text(graph);
  text += "\nround   largest distance from the mean of learners that begin with 1, 0, 0, ...\n";
  for (size_t t = 0; t < findings.errors.size(); ++t) {
    const double error = findings.errors[t];
    const bool is_exact = error <= parallel::rounding_of(graph, static_cast<int>(t));
    text += is_exact ? format("%5zu   exact\n", t) : format("%5zu   %.6f\n", t, error);
  }
  return text;
}

std::string graph_json(const GraphFindings& findings) {
  const LearnerGraph& graph = findings.graph;
  nlohmann::json rounds = nlohmann::json::array();
  for (const GraphRound& round : graph.rounds) {
    nlohmann::json edges = nlohmann::json::array();
    for (const GraphEdge& edge : round) {
      edges.push_back({{"from", edge.from}, {"to", edge.to}, {"weight", edge.weight}});
    }
    rounds.push_back({{"kept", graph.kept(round)}, {"edges", edges}});
  }
  const parallel::GraphReport& report = findings.report;
  return json_text({{"graph", graph.name},
                    {"learners", graph.num_learners},
                    {"doubly_stochastic", graph.kind == parallel::MixingKind::kDoublyStochastic},
                    {"connected", report.is_connected},
                    {"exact_after", report.exact_after >= 0 ? nlohmann::json(report.exact_after)
                                                            : nlohmann::json(nullptr)},
                    {"contraction", report.contraction},
                    {"spectral_gap", 1 - report.contraction},
                    {"most_sends", report.most_sends},
                    {"mean_sends", report.mean_sends},
                    {"errors", findings.errors},
                    {"rounds", rounds},
                    {"fingerprint", graph.fingerprint()}});
}

}  // namespace trireme::cli
